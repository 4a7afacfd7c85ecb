/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The few kernel types a TCP congestion control in eBPF touches. Only names
 * matter: CO-RE finds each field in the running kernel's BTF at load time, so
 * that no generated vmlinux.h is needed and one object runs on every kernel.
 */
#ifndef MLTCP_BPF_TCP_H
#define MLTCP_BPF_TCP_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef signed char s8;
typedef long long s64;
typedef _Bool bool;
#define true 1
#define false 0

/* Names used by <bpf/bpf_helper_defs.h>. */
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s32 __s32;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_endian.h>

#define BPF_MAP_TYPE_HASH	1
#define BPF_MAP_TYPE_SK_STORAGE	24
#define BPF_ANY		0
#define BPF_NOEXIST	1
#define BPF_F_NO_PREALLOC	1
#define BPF_SK_STORAGE_GET_F_CREATE	1

#define max(a, b)	((a) > (b) ? (a) : (b))
#define min(a, b)	((a) < (b) ? (a) : (b))
#define div64_u64(a, b)	((u64)(a) / (u64)(b))
#define WRITE_ONCE(x, v)	(*(volatile typeof(x) *)&(x) = (v))

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct net {
	u64 net_cookie;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr {
	union {
		__be32 u6_addr32[4];
	} in6_u;
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	u16 skc_num;
	u16 skc_family;
	u8 skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;		/* where the kernel has IPv6 */
	struct in6_addr skc_v6_rcv_saddr;
};

typedef struct {
	int counter;
} atomic_t;

typedef struct refcount_struct {
	atomic_t refs;
} refcount_t;

struct sock {
	struct sock_common __sk_common;
	int sk_wmem_queued;
	refcount_t sk_wmem_alloc;
	unsigned long sk_pacing_rate;
	u32 sk_pacing_status;
	u32 sk_mark;
};

#define sk_state	__sk_common.skc_state

struct inet_sock {
	struct sock sk;
};

struct icsk_ack {
	u8 pending;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	struct icsk_ack icsk_ack;
	u8 icsk_ca_state:5;
	u64 icsk_ca_priv[13];
};

struct minmax_sample {
	u32 t, v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 snd_cwnd;
	u32 snd_cwnd_cnt;
	u32 snd_cwnd_clamp;
	u32 snd_ssthresh;
	u32 snd_una;
	u32 snd_nxt;
	u32 write_seq;
	u32 max_packets_out;	/* in the last window */
	u32 rcv_nxt;
	u32 packets_out;
	u32 delivered;
	u32 delivered_ce;
	u32 lost;
	u32 app_limited;	/* nonzero: the application had nothing to send */
	u32 mss_cache;
	u32 notsent_lowat;
	u8 ecn_flags;
	u64 bytes_acked;
	u64 bytes_sent;
	u64 tcp_mstamp;		/* us, now */
	u64 delivered_mstamp;	/* us, when data was last delivered */
	struct minmax rtt_min;
};

enum tcp_ca_event {
	CA_EVENT_TX_START = 0,
	CA_EVENT_LOSS = 3,
	CA_EVENT_ECN_NO_CE = 4,
	CA_EVENT_ECN_IS_CE = 5,
};

struct ack_sample {
	s32 rtt_us;
};

struct rate_sample;

struct tcp_congestion_ops {
	u32 flags;
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	void (*set_state)(struct sock *sk, u8 new_state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event ev);
#ifdef HAVE_CWND_EVENT_TX_START
	void (*cwnd_event_tx_start)(struct sock *sk);
#endif
	void (*in_ack_event)(struct sock *sk, u32 flags);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	void (*cong_control)(struct sock *sk, const struct rate_sample *rs);
	u32 (*undo_cwnd)(struct sock *sk);
	char name[16];
	void *owner;
};

#pragma clang attribute pop

#define AF_INET6	10

#define TCP_CONG_NON_RESTRICTED	1
#define TCP_CONG_NEEDS_ECN	2
#define TCP_ESTABLISHED		1
#define TCP_CLOSE		7
#define TCP_LISTEN		10
#define TCP_CA_Recovery		3
#define TCP_CA_Loss		4
#define TCP_ECN_DEMAND_CWR	4
#define ICSK_ACK_TIMER		2
#define ICSK_ACK_NOW		16
#define SK_PACING_NONE		0
#define SK_PACING_NEEDED	1

/* What the kernel lends a congestion control in eBPF. */
extern u32 tcp_reno_ssthresh(struct sock *sk) __ksym;
extern u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;
extern void tcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked) __ksym;
extern u32 tcp_slow_start(struct tcp_sock *tp, u32 acked) __ksym;
extern void tcp_cong_avoid_ai(struct tcp_sock *tp, u32 w, u32 acked) __ksym;

/*
 * CA_EVENT_TX_START arrives with every other event, or only through a separate
 * operation, if the loader finds it in the kernel. CA_PROG_TX_START() makes a
 * program for that operation, which calls @handler.
 */
#ifdef HAVE_CWND_EVENT_TX_START
#define CA_PROG_TX_START(prog, handler)					\
SEC("struct_ops/" #prog)						\
void BPF_PROG(prog, struct sock *sk)					\
{									\
	handler(sk);							\
}

#define CA_OP_TX_START(prog)	.cwnd_event_tx_start = (void *)(prog),
#else
#define CA_PROG_TX_START(prog, handler)
#define CA_OP_TX_START(prog)
#endif

static inline struct tcp_sock *tcp_sk(const struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static inline struct inet_connection_sock *inet_csk(const struct sock *sk)
{
	return (struct inet_connection_sock *)sk;
}

static inline void *inet_csk_ca(const struct sock *sk)
{
	return (void *)inet_csk(sk)->icsk_ca_priv;
}

static inline int sk_wmem_alloc_get(const struct sock *sk)
{
	return sk->sk_wmem_alloc.refs.counter - 1;
}

static inline u32 tcp_snd_cwnd(const struct tcp_sock *tp)
{
	return tp->snd_cwnd;
}

static inline void tcp_snd_cwnd_set(struct tcp_sock *tp, u32 segments)
{
	tp->snd_cwnd = segments;
}

static inline bool tcp_in_slow_start(const struct tcp_sock *tp)
{
	return tp->snd_cwnd < tp->snd_ssthresh;
}

static inline u32 tcp_min_rtt(const struct tcp_sock *tp)
{
	return tp->rtt_min.s[0].v;
}

static inline bool before(u32 seq1, u32 seq2)
{
	return (s32)(seq1 - seq2) < 0;
}

/* A bit field, whose position only the running kernel's BTF gives. */
static inline u8 ca_state(const struct sock *sk)
{
	return BPF_CORE_READ_BITFIELD(inet_csk(sk), icsk_ca_state);
}

static inline void ca_send_ack(struct sock *sk, u32 rcv_nxt)
{
	bpf_tcp_send_ack(tcp_sk(sk), rcv_nxt);
}

/* Whether both ends have agreed on ECN: RFC 3168's (bit 0) or AccECN (bit 4). */
static inline bool ca_ecn_negotiated(const struct tcp_sock *tp)
{
	return tp->ecn_flags & (1 | 16);
}

/* A socket that cannot have what it asked for (no ECN) gets Reno instead. */
static inline void ca_fall_back(struct sock *sk)
{
	char reno[] = "reno";

	bpf_setsockopt(sk, 6 /* SOL_TCP */, 13 /* TCP_CONGESTION */, reno,
		       sizeof(reno));
}

#endif /* MLTCP_BPF_TCP_H */

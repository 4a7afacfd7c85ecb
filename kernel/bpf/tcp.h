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

#define BPF_MAP_TYPE_HASH 1
#define BPF_ANY 0

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	u16 skc_num;
};

struct sock {
	struct sock_common __sk_common;
};

struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	u64 icsk_ca_priv[13];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 snd_cwnd;
	u32 snd_cwnd_cnt;
	u32 snd_ssthresh;
	u32 packets_out;
	u64 bytes_acked;
	u64 tcp_mstamp;		/* us, now */
	u64 delivered_mstamp;	/* us, when data was last delivered */
};

enum tcp_ca_event {
	CA_EVENT_TX_START = 0,
};

struct tcp_congestion_ops {
	u32 flags;
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	void (*set_state)(struct sock *sk, u8 new_state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event ev);
#ifdef MLTCP_TX_START_OP
	void (*cwnd_event_tx_start)(struct sock *sk);
#endif
	void (*in_ack_event)(struct sock *sk, u32 flags);
	u32 (*undo_cwnd)(struct sock *sk);
	char name[16];
	void *owner;
};

#pragma clang attribute pop

extern u32 tcp_reno_ssthresh(struct sock *sk) __ksym;
extern u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;
extern void tcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked) __ksym;

/*
 * CA_EVENT_TX_START comes with every other event or, where the loader finds
 * that the kernel has one, through an operation of its own.
 */
#ifdef MLTCP_TX_START_OP
#define MLTCP_TX_START_ARGS	struct sock *sk
#define MLTCP_IS_TX_START	true
#define MLTCP_ON_TX_START(f)	.cwnd_event_tx_start = (void *)(f)
#else
#define MLTCP_TX_START_ARGS	struct sock *sk, enum tcp_ca_event event
#define MLTCP_IS_TX_START	(event == CA_EVENT_TX_START)
#define MLTCP_ON_TX_START(f)	.cwnd_event = (void *)(f)
#endif

static inline struct tcp_sock *tcp_sk(const struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static inline void *inet_csk_ca(const struct sock *sk)
{
	return (void *)((struct inet_connection_sock *)sk)->icsk_ca_priv;
}

static inline bool tcp_in_slow_start(const struct tcp_sock *tp)
{
	return tp->snd_cwnd < tp->snd_ssthresh;
}

#endif /* MLTCP_BPF_TCP_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What kernel/tcp_mltcp_*.c use of Linux, for user space: one socket, whose
 * fields the tests set, and a clock. struct sock stands for tcp_sock and
 * inet_connection_sock, too. tcp_slow_start(), tcp_cong_avoid_ai() and
 * tcp_reno_cong_avoid() are those of net/ipv4/tcp_cong.c.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define __KERNEL__
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef unsigned long long u64;
typedef int8_t s8;
typedef int32_t s32;
typedef long long s64;

#define HZ			1000
#define USEC_PER_MSEC		1000UL
#define USEC_PER_SEC		1000000UL
#define usecs_to_jiffies(us)	((us) / 1000)
#define min(a, b)		((a) < (b) ? (a) : (b))
#define max(a, b)		((a) > (b) ? (a) : (b))
#define min_t(type, a, b)	min((type)(a), (type)(b))
#define clamp(x, low, high)	min(max(x, low), high)
#define div64_u64(a, b)		((u64)(a) / (u64)(b))
#define div64_ul(a, b)		((u64)(a) / (b))
#define do_div(a, b)		((a) /= (b))
#define fls64(a)		((a) ? 64 - __builtin_clzll(a) : 0)
#define before(a, b)		((s32)((a) - (b)) < 0)
#define after(a, b)		before(b, a)
#define READ_ONCE(x)		(x)
#define WRITE_ONCE(x, value)	((x) = (value))
#define ARRAY_SIZE(a)		(sizeof(a) / sizeof((a)[0]))
#define BUILD_BUG_ON(wrong)	_Static_assert(!(wrong), #wrong)
#define __read_mostly
#define THIS_MODULE		NULL

/* Locks and lists of one thread. */
typedef int spinlock_t;
#define spin_lock_init(lock)	((void)(lock))
#define spin_lock_bh(lock)	((void)(lock))
#define spin_unlock_bh(lock)	((void)(lock))
#define rcu_read_lock()		((void)0)
#define rcu_read_unlock()	((void)0)
#define GFP_ATOMIC		0
#define kzalloc(size, flags)	calloc(1, size)
#define kfree			free
#define kfree_rcu(object, head)	free(object)
#define hash_32(value, bits)	((value) & ((1U << (bits)) - 1))
struct rcu_head { int unused; };
struct hlist_node { struct hlist_node *next, **pprev; };
struct hlist_head { struct hlist_node *first; };
#define INIT_HLIST_HEAD(head)	((head)->first = NULL)
#define hlist_for_each_entry_rcu(one, head, member, locked)		\
	for (one = (void *)(head)->first; one; one = (void *)one->member.next)

static inline void hlist_add_head_rcu(struct hlist_node *node, struct hlist_head *head)
{
	node->next = head->first;
	node->pprev = &head->first;
	if (node->next)
		node->next->pprev = &node->next;
	head->first = node;
}

static inline void hlist_del_rcu(struct hlist_node *node)
{
	*node->pprev = node->next;
	if (node->next)
		node->next->pprev = node->pprev;
}

/* A connection. */
enum { TCP_CLOSE = 7, TCP_LISTEN = 10 };
enum { TCP_CA_Recovery = 3, TCP_CA_Loss = 4 };
enum { TCP_ECN_OK = 1, TCP_ECN_DEMAND_CWR = 4 };
enum { ICSK_ACK_TIMER = 2, ICSK_ACK_NOW = 16 };
enum { SK_PACING_NONE, SK_PACING_NEEDED };
enum { TCP_CONG_NEEDS_ECN = 2, INET_DIAG_VEGASINFO = 3 };
enum tcp_ca_event {
	CA_EVENT_TX_START, CA_EVENT_CWND_RESTART, CA_EVENT_COMPLETE_CWR,
	CA_EVENT_LOSS, CA_EVENT_ECN_NO_CE, CA_EVENT_ECN_IS_CE,
};
#define tcp_sock		sock
#define inet_connection_sock	sock
struct sock {
	u64 icsk_ca_priv[13];
	u64 bytes_acked, bytes_sent, tcp_mstamp, delivered_mstamp, sk_pacing_rate;
	const struct tcp_congestion_ops *icsk_ca_ops;
	u32 snd_cwnd, snd_cwnd_cnt, snd_cwnd_clamp, snd_ssthresh;
	u32 snd_una, snd_nxt, write_seq, rcv_nxt, lsndtime;
	u32 packets_out, max_packets_out, app_limited, notsent_lowat;
	u32 delivered, delivered_ce, lost, mss_cache, min_rtt;
	u32 sk_mark, sk_state, sk_pacing_status, sk_gso_max_size, sk_wmem_queued, wmem_alloc;
	u32 ecn_flags, icsk_ca_state;
	struct { u32 pending; } icsk_ack;
};
union tcp_cc_info { u32 words[5]; };
struct ack_sample { s32 rtt_us; };
struct rate_sample;

struct tcp_congestion_ops {
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	void (*cong_control)(struct sock *sk, const struct rate_sample *rs);
	void (*set_state)(struct sock *sk, u8 state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event event);
	void (*in_ack_event)(struct sock *sk, u32 flags);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	u32 (*undo_cwnd)(struct sock *sk);
	size_t (*get_info)(struct sock *sk, u32 ext, int *attr, union tcp_cc_info *info);
	u32 flags;
	void *owner;
	const char *name;
};

u32 tcp_jiffies32;

#define tcp_sk(sk)		(sk)
#define inet_csk(sk)		(sk)
#define inet_csk_ca(sk)		((void *)(sk)->icsk_ca_priv)
#define sk_wmem_alloc_get(sk)	((sk)->wmem_alloc)
#define tcp_snd_cwnd(tp)	((tp)->snd_cwnd)
#define tcp_snd_cwnd_set(tp, w)	((tp)->snd_cwnd = (w))
#define tcp_min_rtt(tp)		((tp)->min_rtt)
#define tcp_in_slow_start(tp)	((tp)->snd_cwnd < (tp)->snd_ssthresh)
#define tcp_is_cwnd_limited(sk)	((void)(sk), true)
#define INET_ECN_dontxmit(sk)	((void)(sk))
#define NET_INC_STATS(net, what)
#define NET_ADD_STATS(net, what, count)

/* In place of compat.h. */
#define MLTCP_COMPAT_H
#define CA_OP_TX_START(f)
#define CA_CONG_CONTROL_ARGS	struct sock *sk, const struct rate_sample *rs
#define ca_state(sk)		((sk)->icsk_ca_state)
#define ca_send_ack(sk, next)	((void)(sk), (void)(next))
#define ca_ecn_negotiated(tp)	((tp)->ecn_flags & TCP_ECN_OK)

static inline u32 tcp_slow_start(struct sock *tp, u32 acked)
{
	u32 cwnd = min(tp->snd_cwnd + acked, tp->snd_ssthresh);

	acked -= cwnd - tp->snd_cwnd;
	tp->snd_cwnd = min(cwnd, tp->snd_cwnd_clamp);
	return acked;
}

static inline void tcp_cong_avoid_ai(struct sock *tp, u32 w, u32 acked)
{
	if (tp->snd_cwnd_cnt >= w) {
		tp->snd_cwnd_cnt = 0;
		tp->snd_cwnd++;
	}
	tp->snd_cwnd_cnt += acked;
	if (tp->snd_cwnd_cnt >= w) {
		u32 delta = tp->snd_cwnd_cnt / w;

		tp->snd_cwnd_cnt -= delta * w;
		tp->snd_cwnd += delta;
	}
	tp->snd_cwnd = min(tp->snd_cwnd, tp->snd_cwnd_clamp);
}

static inline void tcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	(void)ack;
	if (tcp_in_slow_start(sk)) {
		acked = tcp_slow_start(sk, acked);
		if (!acked)
			return;
	}
	tcp_cong_avoid_ai(sk, sk->snd_cwnd, acked);
}

static inline u32 tcp_reno_ssthresh(struct sock *sk)
{
	return max(sk->snd_cwnd >> 1U, 2U);
}

static inline u32 tcp_reno_undo_cwnd(struct sock *sk)
{
	return sk->snd_cwnd;
}

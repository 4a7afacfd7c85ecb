// SPDX-License-Identifier: GPL-2.0-only
/*
 * MLTCP-CUBIC: the kernel's own CUBIC, with its increment per ACK scaled by F
 * (see tcp_mltcp_cubic.c for why there).
 */
#include "guard.h"
#include "mltcp_bpf.h"

extern void cubictcp_init(struct sock *sk) __ksym;
extern u32 cubictcp_recalc_ssthresh(struct sock *sk) __ksym;
extern void cubictcp_cong_avoid(struct sock *sk, u32 ack, u32 acked) __ksym;
extern void cubictcp_state(struct sock *sk, u8 new_state) __ksym;
extern void cubictcp_acked(struct sock *sk, const struct ack_sample *sample) __ksym;
#ifdef HAVE_CWND_EVENT_TX_START
extern void cubictcp_cwnd_event_tx_start(struct sock *sk) __ksym;
#else
extern void cubictcp_cwnd_event(struct sock *sk, enum tcp_ca_event event) __ksym;
#endif

struct mltcp_cubic {
	u64 base[8];	/* struct bictcp, 60 bytes, is the kernel's business */
	struct mltcp m;
	struct ca_guard guard;
};

char _license[] SEC("license") = "GPL";

SEC("struct_ops/mltcp_cubic_init")
void BPF_PROG(mltcp_cubic_init, struct sock *sk)
{
	struct mltcp_cubic *ca = inet_csk_ca(sk);

	cubictcp_init(sk);
	mltcp_bpf_init(&ca->m);
	ca_guard_init(&ca->guard, sk);
}

SEC("struct_ops/mltcp_cubic_cong_avoid")
void BPF_PROG(mltcp_cubic_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct mltcp_cubic *ca = inet_csk_ca(sk);

	acked = mltcp_bpf_scale(sk, &ca->m, acked);
	cubictcp_cong_avoid(sk, ack, acked);
}

#ifdef HAVE_CWND_EVENT_TX_START
SEC("struct_ops/mltcp_cubic_tx_start")
void BPF_PROG(mltcp_cubic_tx_start, struct sock *sk)
{
	struct mltcp_cubic *ca = inet_csk_ca(sk);

	cubictcp_cwnd_event_tx_start(sk);
	mltcp_bpf_tx_start(sk, &ca->m);
}
#else
SEC("struct_ops/mltcp_cubic_cwnd_event")
void BPF_PROG(mltcp_cubic_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct mltcp_cubic *ca = inet_csk_ca(sk);

	cubictcp_cwnd_event(sk, event);
	if (event == CA_EVENT_TX_START)
		mltcp_bpf_tx_start(sk, &ca->m);
}
#endif

SEC("struct_ops/mltcp_cubic_in_ack_event")
void BPF_PROG(mltcp_cubic_in_ack_event, struct sock *sk, u32 flags)
{
	struct mltcp_cubic *ca = inet_csk_ca(sk);

	ca_guard_ack(&ca->guard, sk);
}

SEC("struct_ops/mltcp_cubic_release")
void BPF_PROG(mltcp_cubic_release, struct sock *sk)
{
	mltcp_bpf_release(sk);
}

SEC("struct_ops/mltcp_cubic_set_state")
void BPF_PROG(mltcp_cubic_set_state, struct sock *sk, u8 new_state)
{
	cubictcp_state(sk, new_state);
}

SEC("struct_ops/mltcp_cubic_pkts_acked")
void BPF_PROG(mltcp_cubic_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	cubictcp_acked(sk, sample);
}

SEC("struct_ops/mltcp_cubic_ssthresh")
u32 BPF_PROG(mltcp_cubic_ssthresh, struct sock *sk)
{
	struct mltcp_cubic *ca = inet_csk_ca(sk);

	return mltcp_bpf_reduced(sk, &ca->m, cubictcp_recalc_ssthresh(sk));
}

SEC("struct_ops/mltcp_cubic_undo_cwnd")
u32 BPF_PROG(mltcp_cubic_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SEC(".struct_ops")
struct tcp_congestion_ops mltcp_cubic = {
	.init = (void *)mltcp_cubic_init,
	.release = (void *)mltcp_cubic_release,
	.ssthresh = (void *)mltcp_cubic_ssthresh,
	.cong_avoid = (void *)mltcp_cubic_cong_avoid,
	.set_state = (void *)mltcp_cubic_set_state,
#ifdef HAVE_CWND_EVENT_TX_START
	.cwnd_event_tx_start = (void *)mltcp_cubic_tx_start,
#else
	.cwnd_event = (void *)mltcp_cubic_cwnd_event,
#endif
	.in_ack_event = (void *)mltcp_cubic_in_ack_event,
	.pkts_acked = (void *)mltcp_cubic_pkts_acked,
	.undo_cwnd = (void *)mltcp_cubic_undo_cwnd,
	/* Loading it allows it for all users here: see the docs. */
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "mltcp_cubic",
};

// SPDX-License-Identifier: GPL-2.0-only
/* MLTCP-DCTCP: DCTCP, with its additive increase scaled by F (see mltcp.h). */
#include "guard.h"
#include "mltcp_bpf.h"
#include "../dctcp.h"

struct mltcp_dctcp {
	struct dctcp base;
	struct mltcp m;
	struct ca_guard guard;
};

char _license[] SEC("license") = "GPL";

SEC("struct_ops/mltcp_dctcp_init")
void BPF_PROG(mltcp_dctcp_init, struct sock *sk)
{
	struct mltcp_dctcp *ca = inet_csk_ca(sk);

	mltcp_bpf_init(&ca->m);
	ca_guard_init(&ca->guard, sk);
	if (!dctcp_start(sk, &ca->base))
		ca_fall_back(sk);
}

SEC("struct_ops/mltcp_dctcp_in_ack_event")
void BPF_PROG(mltcp_dctcp_in_ack_event, struct sock *sk, u32 flags)
{
	struct mltcp_dctcp *ca = inet_csk_ca(sk);

	ca_guard_ack(&ca->guard, sk);
	dctcp_update_alpha(sk, &ca->base);
}

SEC("struct_ops/mltcp_dctcp_cong_avoid")
void BPF_PROG(mltcp_dctcp_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct mltcp_dctcp *ca = inet_csk_ca(sk);

	acked = mltcp_bpf_scale(sk, &ca->m, acked);
	tcp_reno_cong_avoid(sk, ack, acked);
}

/* The base has reacted to a loss. */
static inline void mltcp_dctcp_lost(struct sock *sk, const struct mltcp *m)
{
	struct tcp_sock *tp = tcp_sk(sk);

	tp->snd_ssthresh = mltcp_bpf_reduced(sk, m, tp->snd_ssthresh);
}

static inline void mltcp_dctcp_on_tx_start(struct sock *sk)
{
	struct mltcp_dctcp *ca = inet_csk_ca(sk);

	mltcp_bpf_tx_start(sk, &ca->m);
}

CA_PROG_TX_START(mltcp_dctcp_tx_start, mltcp_dctcp_on_tx_start)

SEC("struct_ops/mltcp_dctcp_cwnd_event")
void BPF_PROG(mltcp_dctcp_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct mltcp_dctcp *ca = inet_csk_ca(sk);

	if (dctcp_event(sk, &ca->base, event))
		mltcp_dctcp_lost(sk, &ca->m);
	if (event == CA_EVENT_TX_START)
		mltcp_dctcp_on_tx_start(sk);
}

SEC("struct_ops/mltcp_dctcp_release")
void BPF_PROG(mltcp_dctcp_release, struct sock *sk)
{
	mltcp_bpf_release(sk);
}

SEC("struct_ops/mltcp_dctcp_set_state")
void BPF_PROG(mltcp_dctcp_set_state, struct sock *sk, u8 new_state)
{
	struct mltcp_dctcp *ca = inet_csk_ca(sk);

	if (dctcp_new_state(sk, &ca->base, new_state))
		mltcp_dctcp_lost(sk, &ca->m);
}

SEC("struct_ops/mltcp_dctcp_ssthresh")
u32 BPF_PROG(mltcp_dctcp_ssthresh, struct sock *sk)
{
	struct mltcp_dctcp *ca = inet_csk_ca(sk);

	return mltcp_bpf_reduced(sk, &ca->m, dctcp_reduced(sk, &ca->base));
}

SEC("struct_ops/mltcp_dctcp_undo_cwnd")
u32 BPF_PROG(mltcp_dctcp_undo_cwnd, struct sock *sk)
{
	struct mltcp_dctcp *ca = inet_csk_ca(sk);

	return dctcp_undo(sk, &ca->base);
}

SEC(".struct_ops")
struct tcp_congestion_ops mltcp_dctcp = {
	.init = (void *)mltcp_dctcp_init,
	.release = (void *)mltcp_dctcp_release,
	.ssthresh = (void *)mltcp_dctcp_ssthresh,
	.cong_avoid = (void *)mltcp_dctcp_cong_avoid,
	.set_state = (void *)mltcp_dctcp_set_state,
	.cwnd_event = (void *)mltcp_dctcp_cwnd_event,
	CA_OP_TX_START(mltcp_dctcp_tx_start)
	.in_ack_event = (void *)mltcp_dctcp_in_ack_event,
	.undo_cwnd = (void *)mltcp_dctcp_undo_cwnd,
	.flags = TCP_CONG_NEEDS_ECN,
	.name = "mltcp_dctcp",
};

// SPDX-License-Identifier: GPL-2.0-only
/* MLTCP-Reno: Reno, with its additive increase scaled by F (see mltcp.h). */
#include "guard.h"
#include "mltcp_bpf.h"

struct mltcp_reno {
	struct mltcp m;
	struct ca_guard guard;
};

char _license[] SEC("license") = "GPL";

SEC("struct_ops/mltcp_reno_init")
void BPF_PROG(mltcp_reno_init, struct sock *sk)
{
	struct mltcp_reno *ca = inet_csk_ca(sk);

	mltcp_bpf_init(&ca->m);
	ca_guard_init(&ca->guard, sk);
}

SEC("struct_ops/mltcp_reno_cong_avoid")
void BPF_PROG(mltcp_reno_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct mltcp_reno *ca = inet_csk_ca(sk);

	acked = mltcp_bpf_scale(sk, &ca->m, acked);
	tcp_reno_cong_avoid(sk, ack, acked);
}

static inline void mltcp_reno_on_tx_start(struct sock *sk)
{
	struct mltcp_reno *ca = inet_csk_ca(sk);

	mltcp_bpf_tx_start(sk, &ca->m);
}

CA_PROG_TX_START(mltcp_reno_tx_start, mltcp_reno_on_tx_start)

SEC("struct_ops/mltcp_reno_cwnd_event")
void BPF_PROG(mltcp_reno_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_TX_START)
		mltcp_reno_on_tx_start(sk);
}

SEC("struct_ops/mltcp_reno_in_ack_event")
void BPF_PROG(mltcp_reno_in_ack_event, struct sock *sk, u32 flags)
{
	struct mltcp_reno *ca = inet_csk_ca(sk);

	ca_guard_ack(&ca->guard, sk);
}

SEC("struct_ops/mltcp_reno_release")
void BPF_PROG(mltcp_reno_release, struct sock *sk)
{
	mltcp_bpf_release(sk);
}

SEC("struct_ops/mltcp_reno_ssthresh")
u32 BPF_PROG(mltcp_reno_ssthresh, struct sock *sk)
{
	struct mltcp_reno *ca = inet_csk_ca(sk);

	return mltcp_bpf_reduced(sk, &ca->m, tcp_reno_ssthresh(sk));
}

SEC("struct_ops/mltcp_reno_undo_cwnd")
u32 BPF_PROG(mltcp_reno_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SEC(".struct_ops")
struct tcp_congestion_ops mltcp_reno = {
	.init = (void *)mltcp_reno_init,
	.release = (void *)mltcp_reno_release,
	.ssthresh = (void *)mltcp_reno_ssthresh,
	.cong_avoid = (void *)mltcp_reno_cong_avoid,
	.cwnd_event = (void *)mltcp_reno_cwnd_event,
	CA_OP_TX_START(mltcp_reno_tx_start)
	.in_ack_event = (void *)mltcp_reno_in_ack_event,
	.undo_cwnd = (void *)mltcp_reno_undo_cwnd,
	/* Loading it allows it for all users here: see the docs. */
	.flags = TCP_CONG_NON_RESTRICTED,
	.name = "mltcp_reno",
};

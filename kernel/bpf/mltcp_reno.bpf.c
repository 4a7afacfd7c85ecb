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
	const struct mltcp_params p = MLTCP_PARAMS;
	struct mltcp_reno *ca = inet_csk_ca(sk);

	mltcp_init(&ca->m, &p);
	ca_guard_init(&ca->guard, sk);
}

SEC("struct_ops/mltcp_reno_cong_avoid")
void BPF_PROG(mltcp_reno_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	const struct mltcp_params p = MLTCP_PARAMS;
	struct mltcp_reno *ca = inet_csk_ca(sk);

	if (!tcp_in_slow_start(tp))
		acked = mltcp_scale(&ca->m, &p, tp->bytes_acked, acked);
	tcp_reno_cong_avoid(sk, ack, acked);
}

SEC("struct_ops/mltcp_reno_tx_start")
void BPF_PROG(mltcp_reno_tx_start, MLTCP_TX_START_ARGS)
{
	struct mltcp_reno *ca = inet_csk_ca(sk);

	if (MLTCP_IS_TX_START)
		mltcp_bpf_tx_start(sk, &ca->m);
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
	return tcp_reno_ssthresh(sk);
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
	MLTCP_ON_TX_START(mltcp_reno_tx_start),
	.in_ack_event = (void *)mltcp_reno_in_ack_event,
	.undo_cwnd = (void *)mltcp_reno_undo_cwnd,
	.name = "mltcp_reno",
};

// SPDX-License-Identifier: GPL-2.0-only
/* MLTCP-DCQCN: DCQCN, with its additive increase scaled by F (see mltcp.h). */
/* DCQCN's of the paper as recalled. */
#define MLTCP_SLOPE	1093
#define MLTCP_INTERCEPT	273
/* It has a rate. */
#define MLTCP_WINDOW_PARAMETERS(P)
#include "mltcp_bpf.h"
#include "dcqcn_bpf.h"

struct mltcp_dcqcn {
	struct dcqcn_flow base;
	struct mltcp m;
};

char _license[] SEC("license") = "GPL";

SEC("struct_ops/mltcp_dcqcn_sk_init")
void BPF_PROG(mltcp_dcqcn_sk_init, struct sock *sk)
{
	const struct dcqcn_params p = dcqcn_params();
	struct mltcp_dcqcn *ca = inet_csk_ca(sk);

	mltcp_bpf_init(&ca->m);
	if (!dcqcn_start(sk, &ca->base, &p))
		ca_fall_back(sk);
}

static inline void mltcp_dcqcn_update(struct sock *sk)
{
	const struct dcqcn_params p = dcqcn_params();
	struct mltcp_dcqcn *ca = inet_csk_ca(sk);
	u64 f = mltcp_bpf_factor(sk, &ca->m);

	dcqcn_update(sk, &ca->base, &p, (p.r_ai * f) >> 10);
}

/* The arguments after the first are not the same in every kernel. */
SEC("struct_ops/mltcp_dcqcn_cong_control")
void BPF_PROG(mltcp_dcqcn_cong_control, struct sock *sk)
{
	mltcp_dcqcn_update(sk);
}

static inline void mltcp_dcqcn_on_tx_start(struct sock *sk)
{
	struct mltcp_dcqcn *ca = inet_csk_ca(sk);

	mltcp_dcqcn_update(sk);
	mltcp_bpf_tx_start(sk, &ca->m);
}

CA_PROG_TX_START(mltcp_dcqcn_tx_start, mltcp_dcqcn_on_tx_start)

SEC("struct_ops/mltcp_dcqcn_cwnd_event")
void BPF_PROG(mltcp_dcqcn_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct mltcp_dcqcn *ca = inet_csk_ca(sk);

	ce_state_event(sk, &ca->base.ce, event);
	if (event == CA_EVENT_TX_START)
		mltcp_dcqcn_on_tx_start(sk);
}

SEC("struct_ops/mltcp_dcqcn_release")
void BPF_PROG(mltcp_dcqcn_release, struct sock *sk)
{
	mltcp_bpf_release(sk);
}

/* Neither means anything to a rate; TCP asks all the same. */
SEC("struct_ops/mltcp_dcqcn_ssthresh")
u32 BPF_PROG(mltcp_dcqcn_ssthresh, struct sock *sk)
{
	return tcp_snd_cwnd(tcp_sk(sk));
}

SEC("struct_ops/mltcp_dcqcn_undo_cwnd")
u32 BPF_PROG(mltcp_dcqcn_undo_cwnd, struct sock *sk)
{
	return tcp_snd_cwnd(tcp_sk(sk));
}

SEC(".struct_ops")
struct tcp_congestion_ops mltcp_dcqcn_ops = {
	.init = (void *)mltcp_dcqcn_sk_init,
	.release = (void *)mltcp_dcqcn_release,
	.cong_control = (void *)mltcp_dcqcn_cong_control,
	.ssthresh = (void *)mltcp_dcqcn_ssthresh,
	.undo_cwnd = (void *)mltcp_dcqcn_undo_cwnd,
	.cwnd_event = (void *)mltcp_dcqcn_cwnd_event,
	CA_OP_TX_START(mltcp_dcqcn_tx_start)
	.flags = TCP_CONG_NEEDS_ECN,
	.name = "mltcp_dcqcn",
};

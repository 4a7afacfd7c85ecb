// SPDX-License-Identifier: GPL-2.0-only
/* DCQCN as a congestion control of TCP (see dcqcn.h and dcqcn_tcp.h). */
#include "dcqcn_bpf.h"

char _license[] SEC("license") = "GPL";

SEC("struct_ops/dcqcn_sk_init")
void BPF_PROG(dcqcn_sk_init, struct sock *sk)
{
	const struct dcqcn_params p = dcqcn_params();
	struct dcqcn_flow *ca = inet_csk_ca(sk);

	if (!dcqcn_start(sk, ca, &p))
		ca_fall_back(sk);
}

static inline void dcqcn_sk_update(struct sock *sk)
{
	const struct dcqcn_params p = dcqcn_params();
	struct dcqcn_flow *ca = inet_csk_ca(sk);

	dcqcn_update(sk, ca, &p, p.r_ai);
}

/* The arguments after the first are not the same in every kernel. */
SEC("struct_ops/dcqcn_cong_control")
void BPF_PROG(dcqcn_cong_control, struct sock *sk)
{
	dcqcn_sk_update(sk);
}

static inline void dcqcn_on_tx_start(struct sock *sk)
{
	dcqcn_sk_update(sk);
}

CA_PROG_TX_START(dcqcn_tx_start, dcqcn_on_tx_start)

SEC("struct_ops/dcqcn_cwnd_event")
void BPF_PROG(dcqcn_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct dcqcn_flow *ca = inet_csk_ca(sk);

	ce_state_event(sk, &ca->ce, event);
	if (event == CA_EVENT_TX_START)
		dcqcn_on_tx_start(sk);
}

/* Neither means anything to a rate; TCP asks all the same. */
SEC("struct_ops/dcqcn_ssthresh")
u32 BPF_PROG(dcqcn_ssthresh, struct sock *sk)
{
	return tcp_snd_cwnd(tcp_sk(sk));
}

SEC("struct_ops/dcqcn_undo_cwnd")
u32 BPF_PROG(dcqcn_undo_cwnd, struct sock *sk)
{
	return tcp_snd_cwnd(tcp_sk(sk));
}

SEC(".struct_ops")
struct tcp_congestion_ops dcqcn_ops = {
	.init = (void *)dcqcn_sk_init,
	.cong_control = (void *)dcqcn_cong_control,
	.ssthresh = (void *)dcqcn_ssthresh,
	.undo_cwnd = (void *)dcqcn_undo_cwnd,
	.cwnd_event = (void *)dcqcn_cwnd_event,
	CA_OP_TX_START(dcqcn_tx_start)
	.flags = TCP_CONG_NEEDS_ECN,
	.name = "dcqcn",
};

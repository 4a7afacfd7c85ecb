// SPDX-License-Identifier: GPL-2.0-only
/* DCTCP, for kernels without it (see dctcp.h). */
#include "guard.h"
#include "../dctcp.h"

struct guarded_dctcp {
	struct dctcp base;
	struct ca_guard guard;
};

char _license[] SEC("license") = "GPL";

SEC("struct_ops/dctcp_init")
void BPF_PROG(dctcp_init, struct sock *sk)
{
	struct guarded_dctcp *ca = inet_csk_ca(sk);

	ca_guard_init(&ca->guard, sk);
	if (!dctcp_start(sk, &ca->base))
		ca_fall_back(sk);
}

SEC("struct_ops/dctcp_in_ack_event")
void BPF_PROG(dctcp_in_ack_event, struct sock *sk, u32 flags)
{
	struct guarded_dctcp *ca = inet_csk_ca(sk);

	ca_guard_ack(&ca->guard, sk);
	dctcp_update_alpha(sk, &ca->base);
}

SEC("struct_ops/dctcp_cong_avoid")
void BPF_PROG(dctcp_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	tcp_reno_cong_avoid(sk, ack, acked);
}

SEC("struct_ops/dctcp_cwnd_event")
void BPF_PROG(dctcp_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct guarded_dctcp *ca = inet_csk_ca(sk);

	dctcp_event(sk, &ca->base, event);
}

SEC("struct_ops/dctcp_set_state")
void BPF_PROG(dctcp_set_state, struct sock *sk, u8 new_state)
{
	struct guarded_dctcp *ca = inet_csk_ca(sk);

	dctcp_new_state(sk, &ca->base, new_state);
}

SEC("struct_ops/dctcp_ssthresh")
u32 BPF_PROG(dctcp_ssthresh, struct sock *sk)
{
	struct guarded_dctcp *ca = inet_csk_ca(sk);

	return dctcp_reduced(sk, &ca->base);
}

SEC("struct_ops/dctcp_undo_cwnd")
u32 BPF_PROG(dctcp_undo_cwnd, struct sock *sk)
{
	struct guarded_dctcp *ca = inet_csk_ca(sk);

	return dctcp_undo(sk, &ca->base);
}

SEC(".struct_ops")
struct tcp_congestion_ops dctcp = {
	.init = (void *)dctcp_init,
	.ssthresh = (void *)dctcp_ssthresh,
	.cong_avoid = (void *)dctcp_cong_avoid,
	.set_state = (void *)dctcp_set_state,
	.cwnd_event = (void *)dctcp_cwnd_event,
	.in_ack_event = (void *)dctcp_in_ack_event,
	.undo_cwnd = (void *)dctcp_undo_cwnd,
	.flags = TCP_CONG_NEEDS_ECN,
	.name = "dctcp",
};

// SPDX-License-Identifier: GPL-2.0-only
/* Gives the sockets of a cgroup a congestion control, overriding the program's choice. */
#include "tcp.h"

#define BPF_SOCK_OPS_TCP_CONNECT_CB		3
#define BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB	5
#define SOL_TCP		6
#define TCP_CONGESTION	13

const volatile char congestion[16] = "reno";

struct bpf_sock_ops {
	u32 op;
};

char _license[] SEC("license") = "GPL";

SEC("sockops")
int choose(struct bpf_sock_ops *ops)
{
	char name[16];
	u32 i;

	/* Before the first packet on this side, and as soon as there is a socket on the other. */
	if (ops->op != BPF_SOCK_OPS_TCP_CONNECT_CB &&
	    ops->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		return 1;
	for (i = 0; i < sizeof(name); i++)
		name[i] = congestion[i];
	bpf_setsockopt(ops, SOL_TCP, TCP_CONGESTION, name, sizeof(name));
	return 1;
}

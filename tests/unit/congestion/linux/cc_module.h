/* SPDX-License-Identifier: GPL-2.0-only */
/* In place of kernel/cc_module.h: parameters that a test sets, and the module's operations. */
#define CC_DEFAULT(member, name, type, value, low, high, text) .member.name = value,

struct cc_params cc_parameters = { CC_PARAMETERS(CC_DEFAULT) };
static struct cc_net {
	CC_NET_STATE
} cc_namespace;

#define cc_params(sk)	((void)(sk), cc_parameters)
#define cc_net(sk)	((void)(sk), &cc_namespace)
#define CC_MODULE(ops, state, text)				\
	BUILD_BUG_ON(sizeof(state) > sizeof(((struct sock *)0)->icsk_ca_priv)); \
	const struct tcp_congestion_ops *const cc_ops = &(ops)

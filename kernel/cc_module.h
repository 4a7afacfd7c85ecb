/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Parameters of a congestion control as a module. Its file defines CC_NAME,
 * struct cc_params and CC_PARAMETERS(P), a list of P(member, name, type,
 * default, lowest, highest, meaning), and gets:
 *
 *	module parameters, refused at load outside their range;
 *	the same per network namespace, as sysctls net.CC_NAME.*, which begin
 *	with the module's and can be changed at any time;
 *	cc_params(sk), and CC_MODULE().
 *
 * What else it keeps in every namespace it names in CC_NET_STATE before.
 */
#ifndef MLTCP_CC_MODULE_H
#define MLTCP_CC_MODULE_H

#include <linux/inet_diag.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/sysctl.h>
#include <net/netns/generic.h>
#include <net/tcp.h>

#include "compat.h"

#ifndef CC_NET_STATE
#define CC_NET_STATE
#define CC_NET_INIT(cn)
#endif

#define CC_DEFAULT(member, name, type, value, low, high, text) \
	.member.name = value,

/* What flows of a new network namespace begin with. */
static struct cc_params cc_defaults __read_mostly = {
	CC_PARAMETERS(CC_DEFAULT)
};

#define CC_MODULE_PARAM(member, name, type, value, low, high, text)	\
	module_param_named(name, cc_defaults.member.name, type, 0444);	\
	MODULE_PARM_DESC(name, text " (" __stringify(value) ")");

CC_PARAMETERS(CC_MODULE_PARAM)

#define CC_TYPE_int	int
#define CC_TYPE_uint	unsigned int
#define CC_TYPE_ullong	u64
#define CC_HANDLER_int	proc_dointvec_minmax
#define CC_HANDLER_uint	proc_douintvec_minmax
#define CC_HANDLER_ullong	cc_proc_u64

/* A u64 as a sysctl, on 32-bit machines, too. */
static int cc_proc_u64(CA_PROC_HANDLER_ARGS)
{
	const u64 *lowest = table->extra1, *highest = table->extra2;
	u64 *value = table->data, wanted;
	char text[24];
	struct ctl_table line = { .data = text, .maxlen = sizeof(text) };
	int error;

	snprintf(text, sizeof(text), "%llu", READ_ONCE(*value));
	error = proc_dostring(&line, write, buffer, length, position);
	if (error || !write)
		return error;
	error = kstrtoull(strim(text), 0, &wanted);
	if (error)
		return error;
	if (wanted < *lowest || wanted > *highest)
		return -EINVAL;
	WRITE_ONCE(*value, wanted);
	return 0;
}

#define CC_RANGE(member, name, type, value, low, high, text)		\
	static const CC_TYPE_##type name##_range[] = { low, high };

CC_PARAMETERS(CC_RANGE)

#define CC_SYSCTL(member, name, type, value, low, high, text) {		\
	.procname = #name,						\
	.data = &cc_defaults.member.name,				\
	.maxlen = sizeof(cc_defaults.member.name),			\
	.mode = 0644,							\
	.proc_handler = CC_HANDLER_##type,				\
	.extra1 = (void *)&name##_range[0],				\
	.extra2 = (void *)&name##_range[1],				\
},

/* With an empty one at the end, where older kernels stop. */
static const struct ctl_table cc_sysctls[] = {
	CC_PARAMETERS(CC_SYSCTL)
	{ }
};

struct cc_net {
	struct cc_params params;
	struct ctl_table *table;
	struct ctl_table_header *header;

	CC_NET_STATE
};

static unsigned int cc_net_id __read_mostly;

static inline struct cc_net *cc_net(const struct sock *sk)
{
	return net_generic(sock_net(sk), cc_net_id);
}

#define CC_READ(member, name, type, value, low, high, text)		\
	.member.name = READ_ONCE(cn->params.member.name),

/* As they are now; they may change at any time. */
static inline struct cc_params cc_params(const struct sock *sk)
{
	const struct cc_net *cn = cc_net(sk);

	return (struct cc_params){ CC_PARAMETERS(CC_READ) };
}

static int __net_init cc_net_init(struct net *net)
{
	struct cc_net *cn = net_generic(net, cc_net_id);
	size_t i, entries = ARRAY_SIZE(cc_sysctls) - 1;

	cn->params = cc_defaults;
	CC_NET_INIT(cn);
	cn->table = kmemdup(cc_sysctls, sizeof(cc_sysctls), GFP_KERNEL);
	if (!cn->table)
		return -ENOMEM;
	for (i = 0; i < entries; i++)
		cn->table[i].data += (char *)&cn->params - (char *)&cc_defaults;
	cn->header = ca_register_sysctl(net, "net/" CC_NAME, cn->table, entries);
	if (!cn->header) {
		kfree(cn->table);
		return -ENOMEM;
	}
	return 0;
}

static void __net_exit cc_net_exit(struct net *net)
{
	struct cc_net *cn = net_generic(net, cc_net_id);

	unregister_net_sysctl_table(cn->header);
	kfree(cn->table);
}

static struct pernet_operations cc_net_ops = {
	.init = cc_net_init,
	.exit = cc_net_exit,
	.id = &cc_net_id,
	.size = sizeof(struct cc_net),
};

#define CC_CHECK(member, name, type, value, low, high, text)		\
	if ((s64)cc_defaults.member.name < (low) ||			\
	    (s64)cc_defaults.member.name > (high)) {			\
		pr_err(CC_NAME ": " #name "=%lld is not between %lld and %lld\n", \
		       (s64)cc_defaults.member.name, (s64)(low),	\
		       (s64)(high));					\
		return -ERANGE;						\
	}

static int __init cc_register(struct tcp_congestion_ops *ops)
{
	int error;

	CC_PARAMETERS(CC_CHECK)
	error = register_pernet_subsys(&cc_net_ops);
	if (error)
		return error;
	error = tcp_register_congestion_control(ops);
	if (error)
		unregister_pernet_subsys(&cc_net_ops);
	return error;
}

static void __exit cc_unregister(struct tcp_congestion_ops *ops)
{
	tcp_unregister_congestion_control(ops);
	unregister_pernet_subsys(&cc_net_ops);
}

/* All that a module is besides @ops, which keep @state in each socket. */
#define CC_MODULE(ops, state, text)					\
	static int __init ops##_register(void)				\
	{								\
		BUILD_BUG_ON(sizeof(state) > ICSK_CA_PRIV_SIZE);	\
		return cc_register(&(ops));				\
	}								\
	static void __exit ops##_unregister(void)			\
	{								\
		cc_unregister(&(ops));					\
	}								\
	module_init(ops##_register);					\
	module_exit(ops##_unregister);					\
	MODULE_AUTHOR("MLTCP testbed");					\
	MODULE_LICENSE("GPL");						\
	MODULE_DESCRIPTION(text)

#endif /* MLTCP_CC_MODULE_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * MLTCP as a module: the functions that each base calls, with this namespace's
 * parameters, and the report for observers.
 */
#ifndef MLTCP_MODULE_H
#define MLTCP_MODULE_H

#include "mltcp_diag.h"
#include "mltcp_job.h"

#define CC_NET_STATE	struct mltcp_jobs jobs;
#define CC_NET_INIT(cn)	mltcp_jobs_init(&(cn)->jobs)
#include "cc_module.h"

static inline bool mltcp_job_ratio(const struct sock *sk,
				   const struct mltcp_params *p, s32 *ratio)
{
	u32 mark = READ_ONCE(sk->sk_mark);
	struct mltcp_job *job = NULL;

	rcu_read_lock();
	if (mark)
		job = mltcp_jobs_find(&cc_net(sk)->jobs, mark);
	if (job) {
		spin_lock_bh(&job->lock);
		*ratio = p->ratio == MLTCP_LOGARITHMIC ?
			 mltcp_log_ratio(job->sent) :
			 mltcp_share_of(job->sent, job->total_bytes,
					job->inverse, job->shift);
		spin_unlock_bh(&job->lock);
	}
	rcu_read_unlock();
	return job;
}

#include "mltcp_tcp.h"

static inline struct mltcp_params mltcp_params(const struct sock *sk)
{
	return cc_params(sk).mltcp;
}

static inline void mltcp_ca_init(const struct sock *sk, struct mltcp *m)
{
	const struct mltcp_params p = mltcp_params(sk);

	mltcp_init(m, &p);
	m->member = NULL;
}

static inline void mltcp_ca_release(const struct sock *sk, struct mltcp *m)
{
	if (m->member)
		mltcp_job_leave(&cc_net(sk)->jobs, m->member);
	m->member = NULL;
}

/* Report this socket's progress to its job, if it has one. */
static inline void mltcp_ca_count(const struct sock *sk, const struct mltcp *m,
				  const struct mltcp_params *p)
{
	u64 bytes_acked = tcp_sk(sk)->bytes_acked;

	if (!p->share || !m->member)
		return;
	if (mltcp_ratio(m, p, bytes_acked) < 0)
		mltcp_job_count(m->member, 0, 0);
	else
		mltcp_job_count(m->member, mltcp_sent(m, bytes_acked),
				m->total_bytes);
}

static inline u32 mltcp_ca_factor(const struct sock *sk, const struct mltcp *m)
{
	const struct mltcp_params p = mltcp_params(sk);

	mltcp_ca_count(sk, m, &p);
	return mltcp_sk_factor(sk, m, &p);
}

static inline u32 mltcp_ca_scale(struct sock *sk, struct mltcp *m, u32 acked)
{
	const struct mltcp_params p = mltcp_params(sk);

	mltcp_ca_count(sk, m, &p);
	return mltcp_sk_scale(sk, m, &p, acked);
}

static inline u32 mltcp_ca_reduced(const struct sock *sk, const struct mltcp *m,
				   u32 reduced)
{
	const struct mltcp_params p = mltcp_params(sk);

	return mltcp_sk_reduced(sk, m, &p, reduced);
}

/* The base has reacted to a loss by itself. */
static inline void mltcp_ca_lost(struct sock *sk, const struct mltcp *m)
{
	struct tcp_sock *tp = tcp_sk(sk);

	WRITE_ONCE(tp->snd_ssthresh, mltcp_ca_reduced(sk, m, tp->snd_ssthresh));
}

/* A mark may be set at any time before a socket is used. */
static inline void mltcp_ca_join(const struct sock *sk, struct mltcp *m)
{
	u32 mark = READ_ONCE(sk->sk_mark);

	if (m->member && m->member->job->mark != mark)
		mltcp_ca_release(sk, m);
	if (mark && !m->member)
		m->member = mltcp_job_join(&cc_net(sk)->jobs, mark);
}

static inline void mltcp_ca_tx_start(struct sock *sk, struct mltcp *m)
{
	const struct mltcp_params p = mltcp_params(sk);

	if (p.share)
		mltcp_ca_join(sk, m);
	mltcp_sk_tx_start(sk, m, &p);
	mltcp_ca_count(sk, m, &p);
}

/* For sock_diag and TCP_CC_INFO; without any lock. */
static inline size_t mltcp_ca_info(const struct sock *sk, const struct mltcp *m,
				   u32 ext, int *attr, union tcp_cc_info *info)
{
	const struct mltcp_params p = mltcp_params(sk);
	const struct mltcp_info told = {
		.iterations = m->iterations,
		.factor = mltcp_sk_factor(sk, m, &p),
		.ratio = mltcp_sk_ratio(sk, m, &p),
	};

	BUILD_BUG_ON(sizeof(told) > sizeof(*info));
	/* What asks any congestion control for its own. */
	if (!(ext & (1 << (INET_DIAG_VEGASINFO - 1))))
		return 0;
	memcpy(info, &told, sizeof(told));
	*attr = MLTCP_DIAG_INFO;
	return sizeof(told);
}

#endif /* MLTCP_MODULE_H */

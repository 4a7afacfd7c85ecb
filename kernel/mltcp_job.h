/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One ratio for a job, as a module: its sockets have the same SO_MARK, in the
 * same network namespace. Each socket still learns the bytes and the start of
 * its iterations. The shared ratio is
 *
 *	r = bytes sent by all / bytes of an iteration of all
 *
 * over the sockets that know theirs. A channel of a job that is ahead therefore
 * gets no advantage over the others.
 */
#ifndef MLTCP_JOB_H
#define MLTCP_JOB_H

#include <linux/hash.h>
#include <linux/rculist.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "mltcp.h"

#define MLTCP_JOBS_BITS	6

/* The jobs of a network namespace; those that look for one hold no lock. */
struct mltcp_jobs {
	spinlock_t lock;	/* of the lists, and of members */
	struct hlist_head heads[1 << MLTCP_JOBS_BITS];
};

struct mltcp_job {
	struct hlist_node node;
	struct rcu_head rcu;
	u32 mark;
	u32 members;
	spinlock_t lock;	/* of what follows */
	u64 sent;
	u64 total_bytes;
	u32 inverse;
	s8 shift;
};

/* What one socket has added to its job's. */
struct mltcp_member {
	struct mltcp_job *job;
	u64 sent;
	u64 total_bytes;
};

static inline void mltcp_jobs_init(struct mltcp_jobs *jobs)
{
	size_t i;

	spin_lock_init(&jobs->lock);
	for (i = 0; i < ARRAY_SIZE(jobs->heads); i++)
		INIT_HLIST_HEAD(&jobs->heads[i]);
}

static inline struct hlist_head *mltcp_jobs_head(struct mltcp_jobs *jobs,
						 u32 mark)
{
	return &jobs->heads[hash_32(mark, MLTCP_JOBS_BITS)];
}

/* Under rcu_read_lock(), or with the lock of @jobs. */
static inline struct mltcp_job *mltcp_jobs_find(struct mltcp_jobs *jobs,
						u32 mark)
{
	struct mltcp_job *job;

	hlist_for_each_entry_rcu(job, mltcp_jobs_head(jobs, mark), node,
				 lockdep_is_held(&jobs->lock))
		if (job->mark == mark)
			return job;
	return NULL;
}

/* Become a member of the job of that mark; without memory, of none. */
static inline struct mltcp_member *mltcp_job_join(struct mltcp_jobs *jobs,
						  u32 mark)
{
	struct mltcp_member *member = kzalloc(sizeof(*member), GFP_ATOMIC);
	struct mltcp_job *fresh = kzalloc(sizeof(*fresh), GFP_ATOMIC), *job;

	if (!member || !fresh) {
		kfree(member);
		kfree(fresh);
		return NULL;
	}
	spin_lock_bh(&jobs->lock);
	job = mltcp_jobs_find(jobs, mark);
	if (!job) {
		job = fresh;
		fresh = NULL;
		job->mark = mark;
		spin_lock_init(&job->lock);
		hlist_add_head_rcu(&job->node, mltcp_jobs_head(jobs, mark));
	}
	job->members++;
	spin_unlock_bh(&jobs->lock);
	kfree(fresh);
	member->job = job;
	return member;
}

/* From now on this is what one member has sent, and sends in an iteration. */
static inline void mltcp_job_count(struct mltcp_member *member, u64 sent,
				   u64 total_bytes)
{
	struct mltcp_job *job = member->job;

	if (sent == member->sent && total_bytes == member->total_bytes)
		return;
	spin_lock_bh(&job->lock);
	job->sent += sent - member->sent;
	if (total_bytes != member->total_bytes) {
		job->total_bytes += total_bytes - member->total_bytes;
		job->inverse = mltcp_inverse(job->total_bytes, &job->shift);
	}
	spin_unlock_bh(&job->lock);
	member->sent = sent;
	member->total_bytes = total_bytes;
}

static inline void mltcp_job_leave(struct mltcp_jobs *jobs,
				   struct mltcp_member *member)
{
	struct mltcp_job *job = member->job;
	bool last;

	mltcp_job_count(member, 0, 0);
	spin_lock_bh(&jobs->lock);
	last = !--job->members;
	if (last)
		hlist_del_rcu(&job->node);
	spin_unlock_bh(&jobs->lock);
	if (last)
		kfree_rcu(job, rcu);
	kfree(member);
}

#endif /* MLTCP_JOB_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * DCQCN's reaction point: Zhu et al., "Congestion Control for Large-Scale RDMA
 * Deployments", SIGCOMM 2015, section 3.1, in integers. Names as there: current
 * rate R_C, target rate R_T, alpha, T and BC (rate increases since the last CNP
 * by timer and by byte counter), F, K, R_AI, R_HAI, g.
 *
 * Compiled unchanged into modules, eBPF programs and a user-space test, like
 * mltcp.h. Time is passed by the caller, in us. Each call processes the timers
 * that have expired; a flow that sends makes a call every few microseconds.
 *
 * Beyond the paper: a flow that is back at the line rate needs no rate limiter.
 * Its next CNP finds alpha = 1, as its first one did (QCN's release of the rate
 * limiter; initial_alpha_value of the adapters). Otherwise alpha would be zero
 * after every pause of the application. The paper does not give the size of
 * hyper increase: here R_HAI for each event, 10 R_AI as in QCN.
 */
#ifndef MLTCP_DCQCN_H
#define MLTCP_DCQCN_H

#ifdef __KERNEL__
#include <linux/math64.h>
#endif

#define DCQCN_ONE	(1U << 20)	/* of alpha */
#define DCQCN_CATCH_UP	40	/* increases, after which R_C is R_T */
#define DCQCN_MIN_RATE	1000	/* of the line rate: the least that R_C can be */

/* Member of what, name, type, default, lowest, highest, meaning. */
#define DCQCN_PARAMETERS(P)						\
	P(dcqcn, line_rate, uint, 50000, 1, 1000000,			\
	  "rate at which flows begin, in Mbit/s")			\
	P(dcqcn, r_ai, uint, 40000, 1, 100000000,			\
	  "R_AI, step of additive increase, in kbit/s")			\
	P(dcqcn, r_hai, uint, 400000, 1, 100000000,			\
	  "R_HAI, step of hyper increase, in kbit/s")			\
	P(dcqcn, g, uint, 4, 1, 512, "g, gain of alpha, in 1/1024")	\
	P(dcqcn, cnp_interval, uint, 50, 1, 1000000,			\
	  "N, least time between two CNPs, in us")			\
	P(dcqcn, alpha_timer, uint, 55, 1, 1000000,			\
	  "K, time without a CNP after which alpha decays, in us")	\
	P(dcqcn, rate_timer, uint, 55, 1, 1000000,			\
	  "T, time after which the rate increases, in us")		\
	P(dcqcn, fast_recovery, uint, 5, 1, 100,			\
	  "F, increases that only bring R_C back to R_T")		\
	P(dcqcn, byte_counter, ullong, 10000000, 1000, 1LL << 40,	\
	  "B, bytes after which the rate increases")

struct dcqcn_params {
	u32 line_rate;
	u32 r_ai;
	u32 r_hai;
	u32 g;
	u32 cnp_interval;
	u32 alpha_timer;
	u32 rate_timer;
	u32 fast_recovery;
	u64 byte_counter;
};

struct dcqcn {
	u64 current_rate;	/* R_C, bit/s */
	u64 target_rate;	/* R_T, bit/s */
	u64 bytes_at;		/* bytes sent when the byte counter last fired */
	u32 alpha;		/* of DCQCN_ONE */
	u32 cnp_at;		/* us, when the last CNP was heeded */
	u32 alpha_at;		/* us, when alpha was last updated */
	u32 rate_at;		/* us, when the rate timer last fired */
	u16 timer_count;	/* T */
	u16 byte_count;		/* BC */
};

static inline u64 dcqcn_line_rate(const struct dcqcn_params *p)
{
	return p->line_rate * 1000000ULL;
}

static inline void dcqcn_init(struct dcqcn *d, const struct dcqcn_params *p,
			      u32 now, u64 bytes)
{
	d->current_rate = dcqcn_line_rate(p);
	d->target_rate = d->current_rate;
	d->bytes_at = bytes;
	d->alpha = DCQCN_ONE;
	d->cnp_at = now - p->cnp_interval;
	d->alpha_at = now;
	d->rate_at = now;
	d->timer_count = 0;
	d->byte_count = 0;
}

/* A CNP: true if it was heeded, false if it came too soon after the last. */
static inline bool dcqcn_cnp(struct dcqcn *d, const struct dcqcn_params *p,
			     u32 now, u64 bytes)
{
	u64 lowest = div64_u64(dcqcn_line_rate(p), DCQCN_MIN_RATE);

	if (now - d->cnp_at < p->cnp_interval)
		return false;
	if (d->current_rate >= dcqcn_line_rate(p))
		d->alpha = DCQCN_ONE;
	d->target_rate = d->current_rate;
	d->current_rate -= (d->current_rate * d->alpha) >> 21;
	if (d->current_rate < lowest)
		d->current_rate = lowest;
	d->alpha += ((u64)(DCQCN_ONE - d->alpha) * p->g) >> 10;
	d->cnp_at = now;
	d->alpha_at = now;
	d->rate_at = now;
	d->bytes_at = bytes;
	d->timer_count = 0;
	d->byte_count = 0;
	return true;
}

/* One event of the rate timer or of the byte counter, counted already. */
static inline void dcqcn_increase(struct dcqcn *d, const struct dcqcn_params *p,
				  u32 r_ai)
{
	u32 least = d->timer_count, most = d->byte_count;

	if (least > most) {
		least = d->byte_count;
		most = d->timer_count;
	}
	if (least > p->fast_recovery)
		d->target_rate += p->r_hai * 1000ULL;
	else if (most >= p->fast_recovery)
		d->target_rate += r_ai * 1000ULL;
	if (d->target_rate > dcqcn_line_rate(p))
		d->target_rate = dcqcn_line_rate(p);
	d->current_rate = (d->current_rate + d->target_rate + 1) >> 1;
}

/* @times events of one kind, which @count counts. */
static inline void dcqcn_increases(struct dcqcn *d, const struct dcqcn_params *p,
				   u16 *count, u64 times, u32 r_ai)
{
	u32 i;

	for (i = 0; i < DCQCN_CATCH_UP && times; i++, times--) {
		if (*count < 0xffff)
			(*count)++;
		dcqcn_increase(d, p, r_ai);
	}
	if (!times)
		return;
	/* After a pause: by now R_C is at R_T, which grows on. */
	*count = times < 0xffffU - *count ? *count + times : 0xffff;
	if (times > 0xffffffff)
		times = 0xffffffff;
	if (r_ai && times > div64_u64(dcqcn_line_rate(p), 1000ULL * r_ai))
		d->target_rate = dcqcn_line_rate(p);
	else
		d->target_rate += times * r_ai * 1000;
	if (d->target_rate > dcqcn_line_rate(p))
		d->target_rate = dcqcn_line_rate(p);
	d->current_rate = d->target_rate;
}

/* alpha after @times updates without a CNP: (1 - g)^times alpha. */
static inline u32 dcqcn_decayed(u32 alpha, u32 g, u32 times)
{
	u64 result = alpha, factor = DCQCN_ONE - ((u64)DCQCN_ONE * g >> 10);
	u32 i;

	for (i = 0; i < 32 && times; i++, times >>= 1) {
		if (times & 1)
			result = (result * factor) >> 20;
		factor = (factor * factor) >> 20;
	}
	return result;
}

/*
 * Catch up with the timers and the byte counter: it is @now, and @bytes have
 * been sent on this connection. @r_ai: the step of additive increase, in
 * kbit/s (MLTCP scales it).
 */
static inline void dcqcn_advance(struct dcqcn *d, const struct dcqcn_params *p,
				 u32 now, u64 bytes, u32 r_ai)
{
	u32 times = (now - d->alpha_at) / p->alpha_timer;

	d->alpha = dcqcn_decayed(d->alpha, p->g, times);
	d->alpha_at += times * p->alpha_timer;

	times = (now - d->rate_at) / p->rate_timer;
	d->rate_at += times * p->rate_timer;
	dcqcn_increases(d, p, &d->timer_count, times, r_ai);

	if (bytes - d->bytes_at >= p->byte_counter) {
		u64 fired = div64_u64(bytes - d->bytes_at, p->byte_counter);

		d->bytes_at += fired * p->byte_counter;
		dcqcn_increases(d, p, &d->byte_count, fired, r_ai);
	}
}

#endif /* MLTCP_DCQCN_H */

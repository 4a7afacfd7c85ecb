/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * MLTCP: scale additive increase by the share of the training iteration of a
 * flow that is already ACKed (arXiv 2402.09589).
 *
 *	F(r) = slope * r + intercept,	r = bytes ACKed / bytes of an iteration
 *
 * (or another of the paper's candidate curves between the same two ends).
 *
 * This header is the whole algorithm. It is compiled unchanged into kernel
 * modules, into eBPF programs and into a user-space test. The including file
 * provides u8 ... u64, s8 ... s64, bool and div64_u64(). All fractions are in units of 1/1024.
 *
 * A congestion control becomes its MLTCP form with two calls: mltcp_tx_start()
 * from the CA_EVENT_TX_START event, and mltcp_scale() around the number of
 * ACKed segments it passes to its additive increase. Nothing is done per ACK
 * besides that scaling.
 *
 * Where an iteration ends. The paper and the author's ns-3 code look at the gap
 * between ACKs, which cannot tell a compute phase from a retransmission timeout.
 * Here a gap is the time from the last delivery until the next first
 * transmission with nothing outstanding: the application had nothing to send.
 * A gap of at least gap_factor times the longest recent gap is the boundary of
 * an iteration. Shorter ones (for example between the buckets of one all-reduce)
 * are pauses within it. A gap so long that all earlier ones are pauses makes the
 * flow learn anew. A flow that knows its iteration does so only if the gap
 * repeats soon, because a single one may be a checkpoint.
 *
 * total_bytes is the largest recent count between two boundaries. The first
 * interval may be partial. It is not learned from, or only until the next. Until
 * then, and whenever twice of what it learned is ACKed, F = 1: exactly the
 * base algorithm.
 *
 * No ACK costs a division: the reciprocal of total_bytes is computed where
 * total_bytes changes. (Exceptions: the two reciprocal curves, by which F
 * divides, and a ratio that sockets share in eBPF.)
 */
#ifndef MLTCP_H
#define MLTCP_H

#ifdef __KERNEL__
#include <linux/math64.h>
#endif

#define MLTCP_ONE	1024	/* 1.0 */
#define MLTCP_KNOWN	4	/* boundaries after which a flow knows its iteration */
#define MLTCP_SOON	255	/* boundaries within which a rare gap comes again */
#define MLTCP_PAUSES	64	/* so many without a boundary halve the gap */

#define MLTCP_F_MIN	16	/* 1/64: a flow always makes some progress */
#define MLTCP_F_MAX	(64 * MLTCP_ONE)

/* Keeps ACKed bytes << 10 within 64 bits: 18 petabytes per iteration. */
#define MLTCP_BYTES_MAX	(1ULL << 54)
/* A smaller TCP_NOTSENT_LOWAT is meant as such, not as an iteration's bytes. */
#define MLTCP_GIVEN_MIN	(256 << 10)

/*
 * The paper's candidates (Fig. 5), all between intercept and slope + intercept;
 * the first four increase with r, the falling ones are the first and the third
 * of 1 - r.
 */
enum mltcp_curve {
	MLTCP_LINEAR,			/* S r + I */
	MLTCP_QUADRATIC,		/* S r^2 + I */
	MLTCP_RECIPROCAL,		/* I (S + I) / (S + I - S r) */
	MLTCP_CONCAVE,			/* S (2 r - r^2) + I */
	MLTCP_FALLING,
	MLTCP_FALLING_RECIPROCAL,
};

/* What r is. */
enum mltcp_ratio_of {
	MLTCP_OF_ITERATION,	/* bytes ACKed / bytes of an iteration */
	MLTCP_LOGARITHMIC,	/* log(1 + ACKed / 16 KiB) / log(2 GiB / 16 KiB) */
};

#define MLTCP_LOG_FIRST	14	/* log2 of an initial window's bytes, about */
#define MLTCP_LOG_SPAN	17	/* and from there to 2 GiB */

/* Where F acts. */
enum mltcp_apply {
	MLTCP_INCREASE,
	MLTCP_DECREASE,
	MLTCP_BOTH,
};

/* What becomes of the window where an iteration begins. */
enum mltcp_restart {
	MLTCP_KEEP,
	MLTCP_ENTITLED,		/* what F grants a newcomer: sqrt(F(0) / F(1)) of it */
	MLTCP_IN_FLIGHT,	/* what was in flight, at most */
	MLTCP_INITIAL,		/* ten, and a threshold of an eighth at most */
};

#define MLTCP_WINDOW	10	/* segments of an initial window */

/* The paper's values for Reno and CUBIC, as recalled; other bases define theirs before. */
#ifndef MLTCP_SLOPE
#define MLTCP_SLOPE	1792
#define MLTCP_INTERCEPT	256
#endif

/* Member of what, name, type, default, lowest, highest, meaning. */
#define MLTCP_PARAMETERS(P)						\
	P(mltcp, slope, int, MLTCP_SLOPE, -16384, 16384,		\
	  "slope of F, in 1/1024")					\
	P(mltcp, intercept, int, MLTCP_INTERCEPT, 0, 16384,		\
	  "intercept of F, in 1/1024")					\
	P(mltcp, curve, uint, 0, 0, 5,					\
	  "shape of F: linear, quadratic, reciprocal, concave, falling, falling reciprocal") \
	P(mltcp, gap_factor, uint, 512, 64, 1024,			\
	  "share of the longest recent gap that ends an iteration, in 1/1024") \
	P(mltcp, first_gap_us, uint, 1000, 1, 10000000,			\
	  "shortest gap that can end an iteration, in us")		\
	P(mltcp, total_bytes, ullong, 0, 0, 1LL << 54,			\
	  "bytes one flow sends per iteration; 0: learn it")		\
	P(mltcp, learn, uint, 0, 0, 1,					\
	  "which interval is learned from first: the second, the first")	\
	P(mltcp, ratio, uint, 0, 0, 1,					\
	  "r: share of an iteration, logarithm of the bytes sent")	\
	P(mltcp, share, uint, 0, 0, 1,					\
	  "one ratio for each socket, or for those with the same SO_MARK") \
	P(mltcp, given, uint, 0, 0, 1,					\
	  "whether TCP_NOTSENT_LOWAT of a socket is its total_bytes")	\
	MLTCP_WINDOW_PARAMETERS(P)

/* A base with a rate instead of a window defines before that it has none. */
#ifndef MLTCP_WINDOW_PARAMETERS
#define MLTCP_WINDOW_PARAMETERS(P)					\
	P(mltcp, restart, uint, 0, 0, 3,				\
	  "window where an iteration begins: kept, entitled, in flight, initial") \
	P(mltcp, host_limit, uint, 0, 0, 1,				\
	  "no growth while half of what is in flight waits in its own host") \
	P(mltcp, floor_cwnd, uint, 0, 0, 1000,				\
	  "segments of window below which F is at least 1, unless marked") \
	P(mltcp, apply, uint, 0, 0, 2,					\
	  "where F acts: increase, decrease, both")
#endif

struct mltcp_params {
	s32 slope;
	s32 intercept;
	u32 curve;
	u32 gap_factor;
	u32 first_gap_us;
	u32 learn;
	u32 ratio;
	u32 share;
	u32 given;
	u32 restart;
	u32 host_limit;
	u32 floor_cwnd;
	u32 apply;
	u64 total_bytes;
};

struct mltcp {
	u64 start;		/* bytes ACKed when this iteration began */
	u64 total_bytes;	/* learned or given; 0: not yet */
	u32 gap_us;		/* the longest recent gap */
	u32 inverse;		/* of total_bytes: see mltcp_know() */
	u16 iterations;		/* boundaries seen, saturating */
	u16 carry;		/* fraction of a segment left by mltcp_scale() */
	u8 pauses;		/* of this iteration */
	u8 rare;		/* boundaries for which a rare gap is remembered */
	s8 shift;		/* of total_bytes, to have MLTCP_DIGITS */
	u8 outsized:1,		/* the last interval held over twice total_bytes */
	   begun:1,		/* something has been sent */
	   halved:1,		/* gap_us was, since the last boundary */
	   provisional:1;	/* total_bytes are of the first interval */
#ifdef __KERNEL__
	struct mltcp_member *member;	/* of a job: see mltcp_job.h */
#endif
};

#define MLTCP_DIGITS	22

/* The logarithm of @x, not 0, to the base 2, rounded down. */
static inline u32 mltcp_log2(u64 x)
{
	u32 log = 0, step;

	for (step = 32; step; step >>= 1) {
		if (x >> step) {
			x >>= step;
			log += step;
		}
	}
	return log;
}

static inline u64 mltcp_shifted(u64 bytes, s32 shift)
{
	return shift < 0 ? bytes << -shift : bytes >> shift;
}

/*
 * An iteration holds @total bytes (0: unknown), @shift brings them to
 * MLTCP_DIGITS binary digits. Returns their reciprocal, rounded down.
 */
static inline u32 mltcp_inverse(u64 total, s8 *shift)
{
	if (!total || total > MLTCP_BYTES_MAX)
		return 0;
	*shift = (s32)mltcp_log2(total) + 1 - MLTCP_DIGITS;
	return div64_u64(1ULL << (2 * MLTCP_DIGITS + 8),
			 mltcp_shifted(total, *shift) + 1);
}

/*
 * @sent (ACKed bytes) / @total in 1/1024, rounded down: the product with the reciprocal is
 * never too large, and too small by one at most. -1: unknown, or outgrown.
 */
static inline s32 mltcp_share_of(u64 sent, u64 total, u32 inverse, s8 shift)
{
	u64 share;

	if (!inverse || sent / 2 > total)
		return -1;
	if (sent >= total)
		return MLTCP_ONE;
	share = (mltcp_shifted(sent, shift) * inverse) >>
		(2 * MLTCP_DIGITS - 2);
	if ((sent << 10) - share * total >= total)
		share++;
	return (s32)share;
}

/* What an iteration holds, from now on. */
static inline void mltcp_know(struct mltcp *m, u64 total)
{
	m->total_bytes = total;
	m->inverse = mltcp_inverse(total, &m->shift);
}

static inline void mltcp_init(struct mltcp *m, const struct mltcp_params *p)
{
	m->start = 0;
	m->shift = 0;
	mltcp_know(m, p->total_bytes);
	m->gap_us = 0;
	m->iterations = 0;
	m->carry = 0;
	m->pauses = 0;
	m->rare = 0;
	m->outsized = 0;
	m->begun = 0;
	m->halved = 0;
	m->provisional = 0;
}

/* F is 1 for every r: nothing here may differ from the base. */
static inline bool mltcp_neutral(const struct mltcp_params *p)
{
	return !p->slope && p->intercept == MLTCP_ONE;
}

/* Bytes of this iteration ACKed so far. */
static inline u64 mltcp_sent(const struct mltcp *m, u64 bytes_acked)
{
	return bytes_acked > m->start ? bytes_acked - m->start : 0;
}

/* The logarithmic r of @sent ACKed bytes; a mantissa's logarithm is its parabola. */
static inline s32 mltcp_log_ratio(u64 sent)
{
	u64 x = sent + (1ULL << MLTCP_LOG_FIRST);
	u32 log = mltcp_log2(x), part = (x >> (log - 10)) & (MLTCP_ONE - 1);

	if (log >= MLTCP_LOG_FIRST + MLTCP_LOG_SPAN)
		return MLTCP_ONE;
	part += (part * (MLTCP_ONE - part) * 355) >> 20;
	return (((log - MLTCP_LOG_FIRST) << 10) + part) / MLTCP_LOG_SPAN;
}

/* r in 0 ... 1024, or -1 while unknown: not learned yet, or outgrown. */
static inline s32 mltcp_ratio(const struct mltcp *m,
			      const struct mltcp_params *p, u64 bytes_acked)
{
	u64 sent = mltcp_sent(m, bytes_acked);

	if (p->ratio == MLTCP_LOGARITHMIC)
		return mltcp_log_ratio(sent);
	return mltcp_share_of(sent, m->total_bytes, m->inverse, m->shift);
}

/* F(r) in 1/1024; 1 while r is unknown. */
static inline u32 mltcp_factor(const struct mltcp_params *p, s32 ratio)
{
	s64 low = p->intercept, high = low + p->slope;
	s64 r = ratio, f;

	if (ratio < 0)
		return MLTCP_ONE;
	if (p->curve >= MLTCP_FALLING)
		r = MLTCP_ONE - r;
	if (p->curve == MLTCP_RECIPROCAL ||
	    p->curve == MLTCP_FALLING_RECIPROCAL) {
		f = high * MLTCP_ONE - p->slope * r;
		if (low * high <= 0 || f <= 0)
			return MLTCP_F_MIN;
		f = div64_u64(low * high * MLTCP_ONE, f);
	} else {
		if (p->curve == MLTCP_QUADRATIC)
			r = (r * r) >> 10;
		if (p->curve == MLTCP_CONCAVE)
			r = 2 * r - ((r * r) >> 10);
		f = ((p->slope * r) >> 10) + low;
	}
	if (f < MLTCP_F_MIN)
		return MLTCP_F_MIN;
	if (f > MLTCP_F_MAX)
		return MLTCP_F_MAX;
	return (u32)f;
}

/*
 * @f times @acked segments. The fraction of a segment that is left over counts
 * at the next call, so that nothing is lost to rounding.
 */
static inline u32 mltcp_scale(struct mltcp *m, u32 f, u32 acked)
{
	u64 scaled = (u64)acked * f + m->carry;

	m->carry = scaled & (MLTCP_ONE - 1);
	scaled >>= 10;
	return scaled > 0xffffffffULL ? 0xffffffffU : (u32)scaled;
}

/*
 * What is left of a window of @cwnd segments where its base would leave
 * @reduced: F times the odds of what stays against what goes. Of a half, so,
 * F / (1 + F).
 */
static inline u32 mltcp_reduced(u32 f, u32 cwnd, u32 reduced)
{
	u64 stays = (u64)reduced * f, goes, share;

	if (f == MLTCP_ONE || reduced >= cwnd)
		return reduced;
	goes = (u64)(cwnd - reduced) * MLTCP_ONE;
	share = div64_u64(stays << 14, stays + goes);
	stays = (cwnd * share) >> 14;
	return stays < 2 ? 2 : (u32)stays;
}

/* The square root of @x, rounded down. */
static inline u32 mltcp_root(u32 x)
{
	u32 root = 0, bit;

	for (bit = 1U << 15; bit; bit >>= 1)
		if ((root + bit) * (root + bit) <= x)
			root += bit;
	return root;
}

/*
 * The window with which an iteration begins, where @cwnd was left of the last
 * and @in_flight was in use. A window only ever becomes smaller, but for
 * the initial one.
 */
static inline u32 mltcp_window(const struct mltcp_params *p, u32 cwnd,
			       u32 in_flight)
{
	u32 least = mltcp_factor(p, 0), most = mltcp_factor(p, MLTCP_ONE);
	u64 window = cwnd;

	if (p->restart == MLTCP_INITIAL)
		return MLTCP_WINDOW;
	if (p->restart == MLTCP_IN_FLIGHT)
		window = in_flight;
	if (p->restart == MLTCP_ENTITLED && least < most)
		window = window * mltcp_root(div64_u64((u64)least << 20, most)) >> 10;
	if (window < MLTCP_WINDOW)
		window = MLTCP_WINDOW;
	return window < cwnd ? (u32)window : cwnd;
}

/* The slow start threshold with which it begins. */
static inline u32 mltcp_threshold(const struct mltcp_params *p, u32 cwnd,
				  u32 ssthresh)
{
	u32 bound = cwnd / 8 > MLTCP_WINDOW ? cwnd / 8 : MLTCP_WINDOW;

	return p->restart == MLTCP_INITIAL && bound < ssthresh ? bound : ssthresh;
}

/*
 * An interval between two boundaries held @bytes. The largest recent count
 * wins, so that a stray boundary inside an iteration does no lasting harm. A
 * count over twice what is known may be two iterations in one (a boundary was
 * missed): it is believed when it comes twice in a row.
 */
static inline void mltcp_learn(struct mltcp *m, u64 bytes)
{
	u64 total = m->total_bytes;

	if (m->provisional) {
		/* The first interval was a whole one, or was not. */
		m->provisional = 0;
		if (bytes / 2 > total || total / 2 > bytes)
			total = 0;
	}
	if (total && bytes / 2 > total && !m->outsized) {
		m->outsized = 1;
		return;
	}
	m->outsized = 0;
	total -= total / 8;
	mltcp_know(m, bytes > total ? bytes : total);
}

/* An iteration begins, and nothing is known but the gap before it. */
static inline void mltcp_restart(struct mltcp *m, u64 given, u64 bytes_acked,
				 u32 gap_us)
{
	m->start = bytes_acked;
	mltcp_know(m, given);
	m->gap_us = gap_us;
	m->iterations = 1;
	m->pauses = 0;
	m->rare = 0;
	m->halved = 0;
}

/*
 * The bytes of an iteration, if they need not be learned: the parameter, or, if
 * another parameter enables it, the value that the application set for this
 * socket with TCP_NOTSENT_LOWAT. (More than an iteration's bytes never wait to
 * be sent. As a limit this value has no effect, and any application may set it.)
 */
static inline u64 mltcp_given(const struct mltcp_params *p, u32 notsent_lowat)
{
	if (p->given && notsent_lowat >= MLTCP_GIVEN_MIN &&
	    notsent_lowat != 0xffffffff)
		return notsent_lowat;
	return p->total_bytes;
}

/*
 * The first transmission after @gap_us in which nothing was outstanding.
 * @given: the bytes of an iteration, or 0 to learn them.
 * @bytes_acked: all bytes the peer has acknowledged on this connection.
 * Returns true where an iteration begins.
 */
static inline bool mltcp_tx_start(struct mltcp *m, const struct mltcp_params *p,
				  u64 given, u64 bytes_acked, u32 gap_us)
{
	u64 sent = mltcp_sent(m, bytes_acked);
	u64 threshold = ((u64)m->gap_us * p->gap_factor) >> 10;

	if (given && given != m->total_bytes)
		mltcp_know(m, given);

	/* The wait before the very first byte belongs to no iteration. */
	if (!m->begun) {
		m->begun = 1;
		return false;
	}
	/* A sender that was late by a moment has not paused. */
	if (gap_us < p->first_gap_us)
		return false;

	if (gap_us < threshold) {
		/*
		 * A pause. Where no boundary comes although one is due, or
		 * many pauses come without one, the gap was rare: forget it.
		 */
		if (++m->pauses == MLTCP_PAUSES ||
		    (m->total_bytes && sent / 2 > m->total_bytes)) {
			m->gap_us /= 2;
			m->halved = 1;
			m->pauses = 0;
		}
		return false;
	}

	m->pauses = 0;
	m->start = bytes_acked;
	if (m->halved) {
		m->halved = 0;
		if (gap_us / 2 < m->gap_us) {
			/* Shorter gaps than before: other iterations. */
			mltcp_restart(m, given, bytes_acked, gap_us);
			return true;
		}
		m->gap_us = gap_us;	/* as before, after many pauses */
	}
	if (m->gap_us < ((u64)gap_us * p->gap_factor) >> 10) {
		/* Compared to this gap all earlier ones were pauses. */
		if (m->iterations > MLTCP_KNOWN && !m->rare) {
			m->rare = MLTCP_SOON;
			return true;
		}
		m->provisional = p->learn && !given && !m->iterations;
		mltcp_restart(m, m->provisional ? sent : given, bytes_acked,
			      gap_us);
		return true;
	}
	if (m->gap_us < gap_us)
		m->gap_us = gap_us;
	else
		m->gap_us -= (m->gap_us - gap_us) / 4;
	if (!given)
		mltcp_learn(m, sent);
	if (m->iterations < 0xffff)
		m->iterations++;
	if (m->rare)
		m->rare--;
	return true;
}

#endif /* MLTCP_H */

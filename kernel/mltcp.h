/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * MLTCP: scale additive increase by how much of the training iteration a flow
 * has already sent (arXiv 2402.09589).
 *
 *	F(r) = slope * r + intercept,	r = bytes sent / bytes of an iteration
 *
 * (or another of the paper's candidate curves between the same two ends).
 *
 * This header is the whole algorithm. It is compiled unchanged into kernel
 * modules, into eBPF programs and into a user-space test; whoever includes it
 * provides u8 ... u64, s32, s64 and bool. All fractions are in units of 1/1024.
 *
 * A congestion control becomes its MLTCP form with two calls: mltcp_tx_start()
 * from the CA_EVENT_TX_START event, and mltcp_scale() around the number of
 * ACKed segments it hands to its additive increase. Nothing is done per ACK
 * besides that scaling.
 *
 * Where an iteration ends. The paper and the author's ns-3 code look at the gap
 * between ACKs, which cannot tell a compute phase from a retransmission timeout.
 * Here a gap is the time from the last delivery until the next first
 * transmission with nothing outstanding: the application had nothing to send.
 * A gap of at least gap_factor times the longest recent gap is the boundary of
 * an iteration; shorter ones (between the buckets of one all-reduce, say) are
 * pauses within it. A gap beside which all earlier ones are pauses makes the
 * flow learn anew; but a flow that knows its iteration believes it only when it
 * comes again soon, since it may be a checkpoint.
 *
 * total_bytes is the largest recent count between two boundaries; the first,
 * partial interval is never learned from. Until then, and whenever a flow has
 * sent twice what it learned, F = 1: exactly the base algorithm.
 */
#ifndef MLTCP_H
#define MLTCP_H

#define MLTCP_ONE	1024	/* 1.0 */
#define MLTCP_KNOWN	4	/* boundaries after which a flow knows its iteration */
#define MLTCP_SOON	255	/* boundaries within which a rare gap comes again */
#define MLTCP_PAUSES	64	/* so many without a boundary halve the gap */

#define MLTCP_F_MIN	16	/* 1/64: a flow always makes some progress */
#define MLTCP_F_MAX	(64 * MLTCP_ONE)

/* Keeps sent << 10 within 64 bits: 18 petabytes per iteration. */
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

/* Reno's and CUBIC's of the paper as recalled; others say so before. */
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
	  "bytes one flow sends per iteration; 0: learn it")

struct mltcp_params {
	s32 slope;
	s32 intercept;
	u32 curve;
	u32 gap_factor;
	u32 first_gap_us;
	u64 total_bytes;
};

struct mltcp {
	u64 start;		/* bytes ACKed when this iteration began */
	u64 total_bytes;	/* learned or given; 0: not yet */
	u32 gap_us;		/* the longest recent gap */
	u16 iterations;		/* boundaries seen, saturating */
	u16 carry;		/* fraction of a segment left by mltcp_scale() */
	u8 pauses;		/* of this iteration */
	u8 rare;		/* boundaries for which a rare gap is remembered */
	u8 outsized;		/* the last interval held over twice total_bytes */
	u8 begun;		/* something has been sent */
	u8 halved;		/* gap_us was, since the last boundary */
};

static inline void mltcp_init(struct mltcp *m, const struct mltcp_params *p)
{
	m->start = 0;
	m->total_bytes = p->total_bytes;
	m->gap_us = 0;
	m->iterations = 0;
	m->carry = 0;
	m->pauses = 0;
	m->rare = 0;
	m->outsized = 0;
	m->begun = 0;
	m->halved = 0;
}

/* Bytes of this iteration ACKed so far. */
static inline u64 mltcp_sent(const struct mltcp *m, u64 bytes_acked)
{
	return bytes_acked > m->start ? bytes_acked - m->start : 0;
}

/* r in 0 ... 1024, or -1 while unknown: not learned yet, or outgrown. */
static inline s32 mltcp_ratio(const struct mltcp *m, u64 bytes_acked)
{
	u64 total = m->total_bytes;
	u64 sent = mltcp_sent(m, bytes_acked);

	if (!total || total > MLTCP_BYTES_MAX || sent / 2 > total)
		return -1;
	if (sent >= total)
		return MLTCP_ONE;
	return (s32)((sent << 10) / total);
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
		f = (u64)(low * high * MLTCP_ONE) / (u64)f;
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
 * F times @acked segments. The fraction of a segment that is left over counts
 * at the next call, so that nothing is lost to rounding.
 */
static inline u32 mltcp_scale(struct mltcp *m, const struct mltcp_params *p,
			      u64 bytes_acked, u32 acked)
{
	u32 f = mltcp_factor(p, mltcp_ratio(m, bytes_acked));
	u64 scaled = (u64)acked * f + m->carry;

	m->carry = scaled & (MLTCP_ONE - 1);
	scaled >>= 10;
	return scaled > 0xffffffffULL ? 0xffffffffU : (u32)scaled;
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

	if (total && bytes / 2 > total && !m->outsized) {
		m->outsized = 1;
		return;
	}
	m->outsized = 0;
	total -= total / 8;
	m->total_bytes = bytes > total ? bytes : total;
}

/* An iteration begins, and nothing is known but the gap before it. */
static inline void mltcp_restart(struct mltcp *m, u64 given, u64 bytes_acked,
				 u32 gap_us)
{
	m->start = bytes_acked;
	m->total_bytes = given;
	m->gap_us = gap_us;
	m->iterations = 1;
	m->pauses = 0;
	m->rare = 0;
	m->halved = 0;
}

/*
 * The bytes of an iteration, if they need not be learned: what the application
 * has said of this socket with TCP_NOTSENT_LOWAT, or else the parameter. (More
 * than an iteration's bytes never wait to be sent, so that as a limit on them
 * it has no effect, and any application may set it.)
 */
static inline u64 mltcp_given(const struct mltcp_params *p, u32 notsent_lowat)
{
	if (notsent_lowat >= MLTCP_GIVEN_MIN && notsent_lowat != 0xffffffff)
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

	if (given)
		m->total_bytes = given;

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
		/* Beside this gap all earlier ones were pauses. */
		if (m->iterations > MLTCP_KNOWN && !m->rare) {
			m->rare = MLTCP_SOON;
			return true;
		}
		mltcp_restart(m, given, bytes_acked, gap_us);
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

/* SPDX-License-Identifier: BSD-3-Clause */
/* Random numbers for connection ids and phases, and a hash for buckets. */
#ifndef DATAGRAM_PRNG_H
#define DATAGRAM_PRNG_H

#include <stdint.h>

/* xoroshiro128+ (Blackman and Vigna, 2018). */
static inline uint64_t prng_draw(uint64_t state[2])
{
	uint64_t a = state[0], b = state[1], sum = a + b;

	b ^= a;
	state[0] = (a << 24 | a >> 40) ^ b ^ b << 16;
	state[1] = b << 37 | b >> 27;
	return sum;
}

/* All bits of the result depend on all of the value's (the finalizer of MurmurHash3, Appleby). */
static inline uint64_t prng_mix(uint64_t value)
{
	value = (value ^ value >> 33) * 0xff51afd7ed558ccdULL;
	value = (value ^ value >> 33) * 0xc4ceb9fe1a85ec53ULL;
	return value ^ value >> 33;
}

#endif

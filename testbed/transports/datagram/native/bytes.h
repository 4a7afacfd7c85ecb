/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers in network byte order, bitmaps, and what every file of the core counts in. */
#ifndef DATAGRAM_BYTES_H
#define DATAGRAM_BYTES_H

#include <stdbool.h>
#include <stdint.h>

#define NS 1000000000ULL /* a second */

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline void put_be16(uint8_t *at, uint16_t value)
{
	at[0] = value >> 8;
	at[1] = value;
}

static inline void put_be32(uint8_t *at, uint32_t value)
{
	put_be16(at, value >> 16);
	put_be16(at + 2, value);
}

static inline void put_be64(uint8_t *at, uint64_t value)
{
	put_be32(at, value >> 32);
	put_be32(at + 4, value);
}

static inline uint16_t get_be16(const uint8_t *at)
{
	return at[0] << 8 | at[1];
}

static inline uint32_t get_be32(const uint8_t *at)
{
	return (uint32_t)get_be16(at) << 16 | get_be16(at + 2);
}

static inline uint64_t get_be64(const uint8_t *at)
{
	return (uint64_t)get_be32(at) << 32 | get_be32(at + 4);
}

static inline bool bit_is_set(const uint8_t *bits, uint64_t at)
{
	return bits[at / 8] >> at % 8 & 1;
}

static inline void bit_set(uint8_t *bits, uint64_t at)
{
	bits[at / 8] |= 1 << at % 8;
}

#endif

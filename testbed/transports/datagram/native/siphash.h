/* SPDX-License-Identifier: BSD-3-Clause */
/* SipHash-2-4 (Aumasson and Bernstein, 2012): a MAC of 64 bits with a key of 128. */
#ifndef TRANSPORTS_SIPHASH_H
#define TRANSPORTS_SIPHASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIPHASH_KEY 16
#define SIPHASH_MAC 8

void siphash(const uint8_t *key, const uint8_t *data, size_t bytes, uint8_t *mac);
bool siphash_agrees(const uint8_t *key, const uint8_t *data, size_t bytes, const uint8_t *mac);

#endif

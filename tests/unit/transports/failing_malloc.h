/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The core's allocator, which fails when a test says so. Compile everything with
 * -Dmalloc=core_malloc -Dcalloc=core_calloc -Drealloc=core_realloc, and include this once, after
 * all other headers and sources: what follows it has the real functions.
 */
#ifndef TESTS_FAILING_MALLOC_H
#define TESTS_FAILING_MALLOC_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#undef malloc
#undef calloc
#undef realloc

void *malloc(size_t bytes);
void *calloc(size_t count, size_t bytes);
void *realloc(void *old, size_t bytes);

/* Every so many-th allocation fails (0: none does); the one of this number does, too. */
static unsigned long fail_every, fail_at;
static unsigned long allocations, allocation_failures;
static unsigned long long allocated_bytes; /* in all, whatever was freed */

static bool fails(size_t bytes)
{
	unsigned long number = __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED);

	__atomic_add_fetch(&allocated_bytes, bytes, __ATOMIC_RELAXED);
	if (number != fail_at && (!fail_every || number % fail_every))
		return false;
	__atomic_add_fetch(&allocation_failures, 1, __ATOMIC_RELAXED);
	errno = ENOMEM;
	return true;
}

void *core_malloc(size_t bytes)
{
	return fails(bytes) ? NULL : malloc(bytes);
}

void *core_calloc(size_t count, size_t bytes)
{
	return fails(count * bytes) ? NULL : calloc(count, bytes);
}

void *core_realloc(void *old, size_t bytes)
{
	return fails(bytes) ? NULL : realloc(old, bytes);
}

#endif

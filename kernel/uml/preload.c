// SPDX-License-Identifier: GPL-2.0-only
/*
 * Between user-mode Linux and the C library, so that its source stays as it is:
 * the random bytes it asks this machine for come from MLTCP_SEED instead, and
 * its processes die with it.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* SplitMix64 (Steele, Lea and Flood, 2014). */
static uint64_t next(void)
{
	static uint64_t state;
	static int seeded;
	uint64_t z;

	if (!seeded) {
		const char *seed = getenv("MLTCP_SEED");

		state = seed ? strtoull(seed, NULL, 16) : 0;
		seeded = 1;
	}
	z = state += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

ssize_t getrandom(void *buffer, size_t length, unsigned int flags)
{
	char *to = buffer;
	size_t left = length;

	(void)flags;
	while (left) {
		uint64_t bytes = next();
		size_t part = left < sizeof(bytes) ? left : sizeof(bytes);

		memcpy(to, &bytes, part);
		to += part;
		left -= part;
	}
	return (ssize_t)length;
}

long ptrace(enum __ptrace_request request, ...)
{
	unsigned long arguments[3], word;
	va_list list;
	long result;
	int i;

	va_start(list, request);
	for (i = 0; i < 3; i++)
		arguments[i] = va_arg(list, unsigned long);
	va_end(list);

	if (request == PTRACE_SETOPTIONS)
		arguments[2] |= PTRACE_O_EXITKILL;
	/* The C library returns what the kernel writes to an address. */
	if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER)
		arguments[2] = (unsigned long)&word;
	result = syscall(SYS_ptrace, request, arguments[0], arguments[1], arguments[2]);
	if (result < 0 || arguments[2] != (unsigned long)&word)
		return result;
	errno = 0;
	return (long)word;
}

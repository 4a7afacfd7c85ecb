// SPDX-License-Identifier: GPL-2.0-only
/*
 * Between user-mode Linux and the C library, so that the kernel's source needs
 * no change: the random bytes it requests from this machine derive from
 * MLTCP_SEED, and its processes die with it. Expensive calls without effect are
 * skipped: writing floating-point registers back unchanged at every system call
 * of a process, and interrupting the running process for every timer. On a real
 * clock the latter is needed, because a process might compute for a long time.
 */
#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define PROCESSES 1024 /* whose registers are remembered; two with the same slot overwrite each other */

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

int kill(pid_t pid, int signal)
{
	return signal == SIGALRM ? 0 : (int)syscall(SYS_kill, pid, signal);
}

/* What a process that has stood still since then was found to have. */
struct registers {
	long pid; /* 0: of none */
	size_t bytes;
	size_t room;
	char *content;
};

static struct registers remembered[PROCESSES];

static struct registers *place_of(long pid)
{
	return &remembered[pid % PROCESSES];
}

static bool is_state(long request, const unsigned long *arguments)
{
	return (request == PTRACE_GETREGSET || request == PTRACE_SETREGSET) &&
	       arguments[1] == NT_X86_XSTATE;
}

/* Whether the process has these registers already; of what is offered, the machine takes what it has. */
static bool has(long pid, const struct iovec *wanted)
{
	const struct registers *place = place_of(pid);

	return place->pid == pid && place->bytes <= wanted->iov_len &&
	       !memcmp(place->content, wanted->iov_base, place->bytes);
}

static void remember(long pid, const struct iovec *found)
{
	struct registers *place = place_of(pid);

	place->pid = 0;
	if (place->room < found->iov_len) {
		free(place->content);
		place->content = malloc(found->iov_len);
		place->room = place->content ? found->iov_len : 0;
	}
	if (place->room < found->iov_len)
		return;
	memcpy(place->content, found->iov_base, found->iov_len);
	place->bytes = found->iov_len;
	place->pid = pid;
}

/* Whether a request leaves a process where it stands, with these registers. */
static bool keeps_them(long request)
{
	return request == PTRACE_GETREGS || request == PTRACE_SETREGS || request == PTRACE_GETSIGINFO ||
	       request == PTRACE_PEEKUSER || request == PTRACE_GETREGSET;
}

long ptrace(enum __ptrace_request request, ...)
{
	unsigned long arguments[3], word;
	struct iovec *state;
	va_list list;
	long result, pid;
	int i;

	va_start(list, request);
	for (i = 0; i < 3; i++)
		arguments[i] = va_arg(list, unsigned long);
	va_end(list);

	pid = arguments[0];
	state = is_state(request, arguments) ? (struct iovec *)arguments[2] : NULL;
	if (state && request == PTRACE_SETREGSET && has(pid, state))
		return 0;
	if (!keeps_them(request) && place_of(pid)->pid == pid)
		place_of(pid)->pid = 0;

	if (request == PTRACE_SETOPTIONS)
		arguments[2] |= PTRACE_O_EXITKILL;
	/* The C library returns what the kernel writes to an address. */
	if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER)
		arguments[2] = (unsigned long)&word;
	result = syscall(SYS_ptrace, request, arguments[0], arguments[1], arguments[2]);
	if (state && request == PTRACE_GETREGSET && !result)
		remember(pid, state);
	if (result < 0 || arguments[2] != (unsigned long)&word)
		return result;
	errno = 0;
	return (long)word;
}

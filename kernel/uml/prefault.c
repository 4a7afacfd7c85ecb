// SPDX-License-Identifier: GPL-2.0-only
/*
 * Preloaded by Python in user-mode Linux, where a page that is mapped at its
 * first access takes three changes of process. Here all pages of the process are
 * mapped at its start, and those of a copy after the fork, as long as half of
 * the memory is free. testbed/linux/participants/memory.py ends the former.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

static void map_copy(void)
{
	struct sysinfo info;

	if (!sysinfo(&info) && info.freeram > info.totalram / 2 &&
	    !mlockall(MCL_CURRENT))
		munlockall();
}

static __attribute__((constructor)) void map_all(void)
{
	mlockall(MCL_CURRENT | MCL_FUTURE);
	pthread_atfork(NULL, NULL, map_copy);
}

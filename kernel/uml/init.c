// SPDX-License-Identifier: GPL-2.0-only
/*
 * The first program in user-mode Linux: mounts file systems and continues as
 * Python. Everything has the same path in every run: the links in the folder
 * "from" of the run lead to the places on this machine. It needs no shell, no
 * mount(8) and no C library, because loading one takes milliseconds.
 */
#include <linux/mount.h>
#include <sys/syscall.h>

#define ERRNO_MAX 4095

static const char *const PYTHON[] = {
	"/run/mltcp/python/bin/python3", "-P", "-S",
	"/run/mltcp/checkout/testbed/linux/uml_start.py", (void *)0
};

static const char *const ENVIRONMENT[] = {
	"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "TERM=linux",
	"LC_ALL=C.UTF-8", "PYTHONPATH=/run/mltcp/checkout", "PYTHONHASHSEED=0",
	"PYTHONDONTWRITEBYTECODE=1",
	"LD_PRELOAD=/run/mltcp/modules/prefault.so", (void *)0
};

static long call(long number, const void *first, const void *second,
		 const void *third, unsigned long fourth)
{
	register unsigned long r10 __asm__("r10") = fourth;
	register unsigned long r8 __asm__("r8") = 0;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(first), "S"(second), "d"(third),
			   "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return result;
}

static void say(const char *words)
{
	unsigned long length = 0;

	while (words[length])
		length++;
	call(SYS_write, (void *)2, words, (void *)length, 0);
}

static void check(long result, const char *what)
{
	if (result < 0 && result >= -ERRNO_MAX) {
		say("init: ");
		say(what);
		say(" failed\n");
		call(SYS_exit_group, (void *)1, 0, 0, 0);
	}
}

static void mount(const char *source, const char *target, const char *type,
		  unsigned long flags)
{
	check(call(SYS_mount, source, target, type, flags), target);
}

_Noreturn __attribute__((force_align_arg_pointer)) void _start(void)
{
	/* Until /proc is mounted, it is this machine's, and "self" the kernel. */
	check(call(SYS_chdir, "/proc/self/cwd", 0, 0, 0), "chdir");
	call(SYS_mkdir, "/dev/shm", (void *)0755, 0, 0);
	mount("proc", "/proc", "proc", 0);
	mount("sys", "/sys", "sysfs", 0);
	mount("from/checkout", "checkout", 0, MS_BIND);
	mount("from/python", "python", 0, MS_BIND);
	mount("from/modules", "modules", 0, MS_BIND);
	mount("run", "/run", "tmpfs", 0);
	check(call(SYS_mkdir, "/run/mltcp", (void *)0755, 0, 0), "/run/mltcp");
	mount(".", "/run/mltcp", 0, MS_BIND | MS_REC);
	check(call(SYS_chdir, "/", 0, 0, 0), "/");
	check(call(SYS_execve, PYTHON[0], PYTHON, ENVIRONMENT, 0), PYTHON[0]);
	__builtin_unreachable();
}

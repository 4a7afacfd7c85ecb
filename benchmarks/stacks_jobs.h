/* SPDX-License-Identifier: GPL-2.0-only */
/* What the jobs of `stacks_ns3.cpp` and `stacks_htsim.cpp` share: MLTCP, their input, and their output. */
#ifndef STACKS_JOBS_H
#define STACKS_JOBS_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int32_t s32;
typedef int64_t s64;

static inline u64 div64_u64(u64 dividend, u64 divisor) { return dividend / divisor; }

#include "mltcp.h"

static mltcp_params paper() {
    mltcp_params params = {};
#define DEFAULT(of, name, type, value, low, high, meaning) params.name = value;
    MLTCP_PARAMETERS(DEFAULT)
#undef DEFAULT
    return params;
}

static const mltcp_params PAPER = paper();

typedef std::map<std::string, long long> Settings;

struct Job {
    int number = 0;
    long long start_ns = 0;
    std::vector<long long> compute_ns;  // of each iteration

    void report(size_t iteration, long long start, long long send, long long end) const {
        std::printf("%d %zu %lld %lld %lld\n", number, iteration, start, send, end);
    }
};

/* Arguments NAME=VALUE into settings that are there; false: another name, or no value. */
static inline bool read_settings(int argc, char **argv, Settings &settings) {
    for (int i = 1; i < argc; i++) {
        const std::string argument = argv[i];
        const size_t at = argument.find('=');
        if (at == std::string::npos || !settings.count(argument.substr(0, at))) {
            std::fprintf(stderr, "unknown setting %s\n", argv[i]);
            return false;
        }
        settings[argument.substr(0, at)] = std::atoll(argument.c_str() + at + 1);
    }
    return true;
}

/* From standard input, a line a job: its start and its compute times, in ns. */
static inline std::vector<Job> read_jobs() {
    std::vector<Job> jobs;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        Job job;
        job.number = int(jobs.size());
        words >> job.start_ns;
        for (long long ns; words >> ns;)
            job.compute_ns.push_back(ns);
        jobs.push_back(job);
    }
    return jobs;
}

#endif

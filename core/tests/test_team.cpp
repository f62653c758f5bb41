// Tests of Team: every job runs once, sleeping threads wake up, and short-lived teams end.

#include <algorithm>
#include <chrono>

#include "../decoder/team.hpp"
#include "check.hpp"

using namespace tilth::decoder;

int main() {
  for (const std::size_t num_threads : {1u, 2u, 3u, 8u}) {
    Team team(num_threads);
    CHECK_EQUAL(team.num_threads(), num_threads);
    std::vector<int> done;                         // written by the job, read after the phase
    std::vector<std::size_t> owner;                // not atomic: TSan would report a race
    std::vector<std::size_t> in_use(num_threads);  // also if two jobs of a worker ran at once
    for (int phase = 0; phase < 3000; ++phase) {
      const auto num_jobs = static_cast<std::size_t>(phase % 37);
      done.assign(num_jobs, 0);
      owner.assign(num_jobs, num_threads);
      team.run(num_jobs, [&](std::size_t job, std::size_t worker) {
        ++in_use[worker];
        ++done[job];
        owner[job] = worker;
      });
      for (std::size_t job = 0; job < num_jobs; ++job) {
        CHECK_EQUAL(done[job], 1);
        CHECK_EQUAL(owner[job] < num_threads, true);
      }
      // Sometimes long enough for all threads to sleep.
      if (phase % 1000 == 999) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    std::size_t total = 0;
    for (const std::size_t jobs : in_use) total += jobs;
    std::size_t expected = 0;
    for (int phase = 0; phase < 3000; ++phase) expected += static_cast<std::size_t>(phase % 37);
    CHECK_EQUAL(total, expected);
  }
  Team team(2);
  for (int round = 0; round < 5; ++round) {
    // All threads sleep and must wake up: if they did not, the caller would do all of these long
    // jobs.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::vector<std::size_t> owner(8, 2);
    team.run(owner.size(), [&](std::size_t job, std::size_t worker) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      owner[job] = worker;
    });
    CHECK_EQUAL(std::count(owner.begin(), owner.end(), 2u), 0);  // run waits for the last job
    CHECK_EQUAL(std::count(owner.begin(), owner.end(), 1u) > 0, true);
  }
  // More jobs than fit into a phase, each so short that threads compete for the next.
  std::vector<int> times(Team::jobs_per_phase + 1000);
  for (int round = 1; round <= 20; ++round) {
    team.run(times.size(), [&](std::size_t job, std::size_t) { ++times[job]; });
    CHECK_EQUAL(std::count(times.begin(), times.end(), round), std::ptrdiff_t(times.size()));
  }
  // Teams that are destroyed while their threads start.
  for (int i = 0; i < 200; ++i) Team brief(3);
  return 0;
}

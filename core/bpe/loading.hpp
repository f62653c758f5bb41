// loading_threads: the number of threads that load a vocabulary, for run_jobs of common/pool.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <thread>

namespace tilth {

// At most four: the largest vocabulary takes a tenth of a second, often in many processes at once.
inline std::size_t loading_threads() { return std::min(std::thread::hardware_concurrency(), 4u); }

}  // namespace tilth

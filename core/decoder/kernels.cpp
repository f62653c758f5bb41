#include "kernels.hpp"

namespace tilth::decoder {

std::span<const Kernels* const> runnable_kernels() {
#if defined(__x86_64__)
  static const Kernels* const kernels[] = {&portable_kernels, &avx2_kernels, &avx512_kernels};
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512vnni");
  return std::span(kernels).first(!has_avx2 ? 1 : has_avx512 ? 3 : 2);
#else
  static const Kernels* const kernels[] = {&portable_kernels};
  return kernels;
#endif
}

const Kernels& best_kernels() { return *runnable_kernels().back(); }

}  // namespace tilth::decoder

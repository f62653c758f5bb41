#include "kernels.hpp"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

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
#elif defined(__aarch64__) && defined(__linux__)
  static const Kernels* const kernels[] = {&portable_kernels, &neon_dot_kernels};
  const bool has_dot = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  return std::span(kernels).first(has_dot ? 2 : 1);
#else
  static const Kernels* const kernels[] = {&portable_kernels};
  return kernels;
#endif
}

const Kernels& best_kernels() { return *runnable_kernels().back(); }

}  // namespace tilth::decoder

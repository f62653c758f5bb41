#include "kernels.hpp"

namespace tilth::decoder {

std::span<const Kernels* const> runnable_kernels() {
#if defined(__x86_64__)
  static const Kernels* const kernels[] = {&portable_kernels, &avx2_kernels};
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return std::span(kernels).first(has_avx2 ? 2 : 1);
#else
  static const Kernels* const kernels[] = {&portable_kernels};
  return kernels;
#endif
}

const Kernels& best_kernels() { return *runnable_kernels().back(); }

}  // namespace tilth::decoder

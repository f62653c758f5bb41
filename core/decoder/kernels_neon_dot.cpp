// Compiled with -march=armv8.2-a+dotprod; empty on other architectures.
#if defined(__ARM_FEATURE_DOTPROD)
#include "kernels_source.hpp"

namespace tilth::decoder {

const Kernels neon_dot_kernels = {"neon dot product",
                                  product<float>,
                                  product<std::uint16_t>,
                                  product_int8,
                                  product_int4,
                                  quantize,
                                  rms_norm,
                                  activate,
                                  exponentials,
                                  largest_of,
                                  sum_of,
                                  sum_at_least,
                                  select,
                                  log_sum_exp,
                                  attend};

}  // namespace tilth::decoder
#endif

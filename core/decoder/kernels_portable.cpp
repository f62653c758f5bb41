#include "kernels_source.hpp"

namespace tilth::decoder {

#if defined(__ARM_NEON)
#define TILTH_NAME "neon"
#else
#define TILTH_NAME "portable"
#endif

const Kernels portable_kernels = {TILTH_NAME,   product<float>, product<std::uint16_t>,
                                  product_int8, product_int4,   quantize,
                                  rms_norm,     activate,       exponentials,
                                  largest_of,   sum_of,         sum_at_least,
                                  select,       log_sum_exp,    attend};

}  // namespace tilth::decoder

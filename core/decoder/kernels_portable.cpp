#include "kernels_source.hpp"

namespace tilth::decoder {

#if defined(__ARM_NEON)
#define TILTH_NAME "neon"
#else
#define TILTH_NAME "portable"
#endif

const Kernels portable_kernels = {TILTH_NAME, product, product_int8, quantize,
                                  rms_norm,   silu,    attend};

}  // namespace tilth::decoder

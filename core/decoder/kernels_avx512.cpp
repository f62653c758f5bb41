// Compiled with -mavx512f, bw, dq, vl and vnni; empty on other architectures.
#if defined(__AVX512VNNI__)
#include "kernels_source.hpp"

namespace tilth::decoder {

const Kernels avx512_kernels = {"avx512",     product<float>, product<std::uint16_t>,
                                product_int8, product_int4,   quantize,
                                rms_norm,     activate,       exponentials,
                                largest_of,   sum_of,         sum_at_least,
                                select,       log_sum_exp,    attend};

}  // namespace tilth::decoder
#endif

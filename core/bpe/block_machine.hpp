// block_machine: the instructions with which a splitter reads 64 bytes at a time.
//
//     struct Machine {
//       static ByteMasks classify(const char* bytes);
//       static KnownLetters known_letters(const char* bytes);  // may know none
//       static void write_ends(const char* block, std::uint64_t starts, const char** ends);
//     };
//
// Contract: all machines give the same pieces. A splitter compiles its loop once for each machine,
// in a function with the same target attribute, and chooses one at run time.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "characters.hpp"

namespace tilth::bpe {

constexpr std::uint64_t bit(std::size_t i) { return std::uint64_t{1} << i; }
constexpr std::uint64_t bits_below(std::size_t i) {
  return i < 64 ? bit(i) - 1 : ~std::uint64_t{0};
}

// Write the addresses of the bits of `starts` to `ends`, which has space for the next multiple of
// eight. The number of pieces in a block is unpredictable, so addresses are written eight at a
// time; the next block overwrites the surplus.
[[gnu::always_inline]] inline void write_ends_by_bits(const char* block, std::uint64_t starts,
                                                      const char** ends) {
  const auto num_starts = static_cast<std::size_t>(std::popcount(starts));
  for (std::size_t written = 0; written < num_starts; written += 8) {
    for (std::size_t i = 0; i < 8; ++i) {
      ends[written + i] = block + std::countr_zero(starts | bit(63));
      starts &= starts - 1;
    }
  }
}

struct AnyMachine {
  static ByteMasks classify(const char* bytes) { return classify_64_bytes(bytes); }
  static KnownLetters known_letters(const char*) { return {}; }
  static void write_ends(const char* block, std::uint64_t starts, const char** ends) {
    write_ends_by_bits(block, starts, ends);
  }
};

#if defined(__x86_64__)

struct Avx2Machine {
  TILTH_AVX2 static ByteMasks classify(const char* bytes) { return classify_64_bytes_avx2(bytes); }
  static KnownLetters known_letters(const char*) { return {}; }
  TILTH_AVX2 static void write_ends(const char* block, std::uint64_t starts, const char** ends) {
    write_ends_by_bits(block, starts, ends);
  }
};

struct Avx512Machine {
  TILTH_AVX512 static ByteMasks classify(const char* bytes) {
    return classify_64_bytes_avx512(bytes);
  }
  TILTH_AVX512 static KnownLetters known_letters(const char* bytes) {
    return known_letters_avx512(bytes);
  }
  // Compress the numbers of the bits, then widen eight at a time. With a mask, as GCC 12 warns of
  // its own intrinsic without one.
  TILTH_AVX512 static void write_ends(const char* block, std::uint64_t starts, const char** ends) {
    alignas(64) std::uint8_t places[64];
    _mm512_store_si512(places, _mm512_maskz_compress_epi8(_cvtu64_mask64(starts), first_numbers()));
    constexpr __mmask8 all = 0xFF;
    const __m512i base = _mm512_set1_epi64(reinterpret_cast<std::intptr_t>(block));
    const auto num_starts = static_cast<std::size_t>(std::popcount(starts));
    for (std::size_t written = 0; written < num_starts; written += 8) {
      const __m128i next = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(places + written));
      _mm512_storeu_si512(ends + written,
                          _mm512_add_epi64(base, _mm512_maskz_cvtepu8_epi64(all, next)));
    }
  }

 private:
  TILTH_AVX512 static __m512i first_numbers() {
    static constexpr auto numbers = [] {
      std::array<std::uint8_t, 64> all{};
      for (std::uint8_t i = 0; i < 64; ++i) all[i] = i;
      return all;
    }();
    return _mm512_loadu_si512(numbers.data());
  }
};

#endif

// Fewer bytes beyond ASCII are decoded faster than known_letters() finds them.
inline constexpr int most_decoded = 8;

// The best instructions of this processor up to `level`: 0 portable, 1 AVX2, 2 AVX-512.
inline int machine_level(int level) {
  return std::min(level, has_avx512() ? 2 : has_avx2() ? 1 : 0);
}

}  // namespace tilth::bpe

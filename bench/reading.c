/* Read a buffer again and again with some threads: the bound of a decoder that reads its weights.

       cc -O3 -march=native -shared -fPIC -pthread reading.c -o reading.so

   Each thread reads its part, in four streams as the decoder does. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
  const uint64_t* first;
  size_t count, repeats;
  uint64_t sum;
} Part;

static void* read_part(void* argument) {
  Part* part = argument;
  const size_t quarter = part->count / 4;
  uint64_t sum = 0;
  for (size_t repeat = 0; repeat < part->repeats; ++repeat) {
    const uint64_t *a = part->first, *b = a + quarter, *c = b + quarter, *d = c + quarter;
    uint64_t pass = repeat;
    for (size_t i = 0; i < quarter; ++i) pass += (a[i] ^ b[i]) + (c[i] ^ d[i]);
    sum += pass;
    __asm__ volatile("" ::: "memory"); /* each pass reads the memory again */
  }
  part->sum = sum;
  return NULL;
}

/* The sum of all passes over `count` numbers, a multiple of 4 * threads; at most 64 threads. */
uint64_t read_buffer(const uint64_t* buffer, size_t count, size_t repeats, size_t threads) {
  pthread_t ids[64];
  Part parts[64];
  const size_t share = count / threads;
  for (size_t t = 0; t < threads; ++t) {
    parts[t] = (Part){buffer + t * share, share, repeats, 0};
    if (t > 0 && pthread_create(&ids[t], NULL, read_part, &parts[t]) != 0) return 0;
  }
  read_part(&parts[0]);
  uint64_t sum = parts[0].sum;
  for (size_t t = 1; t < threads; ++t) {
    pthread_join(ids[t], NULL);
    sum += parts[t].sum;
  }
  return sum;
}

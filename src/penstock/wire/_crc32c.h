/* CRC-32C of a few hundred bytes with the processor's instruction: one call of the library costs more than the sum itself.
 * Longer ranges are the library's: it runs three streams at once. */
#ifndef PENSTOCK_CRC32C_H
#define PENSTOCK_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)

static inline int has_crc32c_instruction(void) { return __builtin_cpu_supports("sse4.2"); }

__attribute__((target("sse4.2"))) static uint32_t crc32c_short(const uint8_t *data, size_t size) {
    uint64_t crc = 0xFFFFFFFFu;
    uint64_t word;
    for (; size >= 8; data += 8, size -= 8) {
        memcpy(&word, data, 8);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    for (; size > 0; data++, size--)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *data);
    return (uint32_t)crc ^ 0xFFFFFFFFu;
}

#else

static inline int has_crc32c_instruction(void) { return 0; }
static uint32_t crc32c_short(const uint8_t *data, size_t size) { (void)data; (void)size; return 0; }

#endif

#endif

/* CRC-32C of a few hundred bytes with the processor's instruction: one call of the library costs more than the sum itself.
 * Longer ranges are the library's: it runs three streams at once. `before` is the sum of what is in front, or 0. */
#ifndef PENSTOCK_CRC32C_H
#define PENSTOCK_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)

static inline int has_crc32c_instruction(void) { return __builtin_cpu_supports("sse4.2"); }

__attribute__((target("sse4.2"))) static uint32_t crc32c_short(const uint8_t *data, size_t size, uint32_t before) {
    uint64_t crc = before ^ 0xFFFFFFFFu;
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
static uint32_t crc32c_short(const uint8_t *data, size_t size, uint32_t before) {
    (void)data; (void)size; (void)before;
    return 0;
}

#endif

/* The same on any processor, for loops that run without the interpreter's lock and so cannot call the library. */
__attribute__((unused)) static uint32_t crc32c_table[256];

__attribute__((unused)) static void crc32c_prepare(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0);
        crc32c_table[byte] = crc;
    }
}

__attribute__((unused)) static uint32_t crc32c_any(const uint8_t *data, size_t size, int has_instruction) {
    if (has_instruction)
        return crc32c_short(data, size, 0);
    uint32_t crc = 0xFFFFFFFFu;
    for (; size > 0; data++, size--)
        crc = (crc >> 8) ^ crc32c_table[(crc ^ *data) & 0xFF];
    return crc ^ 0xFFFFFFFFu;
}

#endif

/* Big-endian integers at unaligned addresses. */
#ifndef PENSTOCK_ENDIAN_H
#define PENSTOCK_ENDIAN_H

#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define PENSTOCK_SWAP16(v) __builtin_bswap16(v)
#define PENSTOCK_SWAP32(v) __builtin_bswap32(v)
#define PENSTOCK_SWAP64(v) __builtin_bswap64(v)
#else
#define PENSTOCK_SWAP16(v) (v)
#define PENSTOCK_SWAP32(v) (v)
#define PENSTOCK_SWAP64(v) (v)
#endif

static inline uint16_t load16(const uint8_t *p) { uint16_t v; memcpy(&v, p, 2); return PENSTOCK_SWAP16(v); }
static inline uint32_t load32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return PENSTOCK_SWAP32(v); }
static inline uint64_t load64(const uint8_t *p) { uint64_t v; memcpy(&v, p, 8); return PENSTOCK_SWAP64(v); }
static inline void store16(uint8_t *p, uint16_t v) { v = PENSTOCK_SWAP16(v); memcpy(p, &v, 2); }
static inline void store32(uint8_t *p, uint32_t v) { v = PENSTOCK_SWAP32(v); memcpy(p, &v, 4); }
static inline void store64(uint8_t *p, uint64_t v) { v = PENSTOCK_SWAP64(v); memcpy(p, &v, 8); }

#endif

// Numbers of a GPU's values: the first and last element of each key.
#ifndef NVMLTEST_KEYS_H
#define NVMLTEST_KEYS_H

enum key {
#define TEXT(symbol, name, count) K_##symbol, K_##symbol##_LAST = K_##symbol + (count) - 1,
#define NUMBER TEXT
#include "keys.def"
#undef TEXT
#undef NUMBER
	K_COUNT,
};

#endif

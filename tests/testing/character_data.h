// Text as training data for the character models of the corpora.
#ifndef WEFT_TESTS_TESTING_CHARACTER_DATA_H_
#define WEFT_TESTS_TESTING_CHARACTER_DATA_H_

#include <cstdint>
#include <map>
#include <string>

#include "tensor/tensor.h"

namespace weft::testing {

inline constexpr int64_t kCharactersPerRow = 64;

// The corpora's text; empty when it cannot be read.
std::string ReadCorpusText(const std::string& corpora);

// int64 [rows, kCharactersPerRow]: row r holds the ids (places in the sorted set of the text's
// characters) of the characters from kCharactersPerRow * r + offset on. REQUIRES: the text is long
// enough.
Tensor CharacterIds(const std::string& text, int64_t rows, int64_t offset);

// Writes "idx" and "labels" (the next characters) as .npy files to the folder; their paths by
// input.
std::map<std::string, std::string> WriteCharacterData(const std::string& text, int64_t rows,
                                                      const std::string& folder);

}  // namespace weft::testing

#endif  // WEFT_TESTS_TESTING_CHARACTER_DATA_H_

// Vocabulary: text to token numbers.
#ifndef WEFT_TRAINING_DATA_VOCABULARY_H_
#define WEFT_TRAINING_DATA_VOCABULARY_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tensor/tensor.h"

namespace weft {

// Immutable, so thread-safe.
class Vocabulary {
 public:
  // The distinct characters (code points) of a UTF-8 text, numbered in the order of their codes.
  // InvalidArgument names the byte where it is no UTF-8.
  static absl::StatusOr<Vocabulary> OfCharacters(std::string_view text, const std::string& name);

  // A vocabulary file: line k, from 0, is token k. In it \n, \r, \t, \s (a space) and \\ stand for
  // these characters. A token "<unk>" stands for each character that begins no token. At most 2^24
  // tokens of at most 256 bytes.
  static absl::StatusOr<Vocabulary> Parse(std::string_view file, const std::string& name);

  int64_t size() const { return static_cast<int64_t>(numbers_.size()); }

  // The tokens of `text`, at each place the longest that fits: uint16 [tokens], or uint32 for a
  // vocabulary of more than 65536. InvalidArgument names the byte where no token fits.
  absl::StatusOr<Tensor> Encode(std::string_view text, const std::string& name) const;

 private:
  absl::Status Add(const std::string& token, const std::string& name);
  // Number and length of the token that `rest` begins with; nothing when there is none.
  std::optional<std::pair<uint32_t, size_t>> Match(std::string_view rest) const;
  template <typename Number>
  absl::StatusOr<Tensor> EncodeAs(std::string_view text, const std::string& name) const;

  std::map<std::string, uint32_t, std::less<>> numbers_;
  // By first byte: the lengths of the tokens that begin with it, descending.
  std::array<std::vector<size_t>, 256> lengths_;
  std::array<int64_t, 256> single_;  // numbers of tokens of one byte; -1 = none
  std::optional<uint32_t> unknown_;

  Vocabulary() { single_.fill(-1); }
};

}  // namespace weft

#endif  // WEFT_TRAINING_DATA_VOCABULARY_H_

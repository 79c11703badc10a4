// MessageWriter, MessageReader: values as bytes, between two processes of one program.
#ifndef WEFT_OPS_CUSTOM_ISOLATION_MESSAGE_BYTES_H_
#define WEFT_OPS_CUSTOM_ISOLATION_MESSAGE_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft {

// Appends values, as they lie in memory; lists and texts have their length before them.
class MessageWriter {
 public:
  template <typename T>
  void Number(T value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    Raw(&value, sizeof(value));
  }
  void Text(std::string_view text) {
    Number(uint64_t{text.size()});
    bytes_.append(text);
  }
  template <typename T>
  void Numbers(const T* values, size_t count) {
    static_assert(std::is_arithmetic_v<T>);
    Number(uint64_t{count});
    if (count > 0) Raw(values, count * sizeof(T));
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void Raw(const void* data, size_t size) { bytes_.append(static_cast<const char*>(data), size); }
  std::string bytes_;
};

// Reads them back. The bytes may be anybody's: what is not in them reads as zero, and the message
// is then not whole. A list never takes more memory than the message has bytes.
class MessageReader {
 public:
  // Borrows `bytes`.
  explicit MessageReader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  T Number() {
    static_assert(std::is_arithmetic_v<T>);
    T value{};
    Raw(&value, sizeof(value));
    return value;
  }
  std::string_view Text() {
    const size_t size = Length(1);
    const std::string_view text = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return text;
  }
  template <typename T>
  std::vector<T> Numbers() {
    std::vector<T> values(Length(sizeof(T)));
    if (!values.empty()) Raw(values.data(), values.size() * sizeof(T));
    return values;
  }
  // The length of a list whose entries take `bytes_each` at least. 0, and not whole, where the rest
  // of the message cannot hold them.
  size_t Length(size_t bytes_each) {
    const uint64_t count = Number<uint64_t>();
    if (count <= rest_.size() / bytes_each) return static_cast<size_t>(count);
    is_whole_ = false;
    return 0;
  }

  // Whether all that was asked for was in it, and nothing else is.
  bool WasAll() const { return is_whole_ && rest_.empty(); }

 private:
  void Raw(void* into, size_t size) {
    if (size > rest_.size()) {
      is_whole_ = false;
      rest_ = {};
      return;
    }
    std::memcpy(into, rest_.data(), size);
    rest_.remove_prefix(size);
  }

  std::string_view rest_;
  bool is_whole_ = true;
};

}  // namespace weft

#endif  // WEFT_OPS_CUSTOM_ISOLATION_MESSAGE_BYTES_H_

#include "executor/variables/variable_digest.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "absl/strings/str_cat.h"
#include "platform/checksum.h"
#include "platform/status_macros.h"
#include "tensor/tensor.h"

namespace weft {
namespace {

constexpr int64_t kDigestPieceBytes = int64_t{4} << 20;

// What a variable's pieces are read through.
class PieceReader {
 public:
  PieceReader(Device& device, VariableStore& variables)
      : variables_(variables), reaches_(device.info().host_accessible) {}

  absl::StatusOr<uint64_t> Digest(const std::string& name) {
    const VariableShard* const shard = variables_.Find(name);
    if (shard == nullptr) {
      return absl::NotFoundError(absl::StrCat("no variable '", name, "' to digest on this rank"));
    }
    const int64_t bytes = DTypeBytes(shard->dtype, shard->local_shape.num_elements());
    std::vector<uint64_t> pieces;
    for (int64_t first = 0; first < bytes; first += kDigestPieceBytes) {
      const int64_t count = std::min(bytes - first, kDigestPieceBytes);
      WEFT_ASSIGN_OR_RETURN(const std::span<const std::byte> piece, Read(name, first, count));
      pieces.push_back(Checksum(piece));
    }
    return Checksum(std::as_bytes(std::span(pieces)));
  }

 private:
  absl::StatusOr<std::span<const std::byte>> Read(const std::string& name, int64_t first,
                                                  int64_t count) {
    const auto size = static_cast<size_t>(count);
    if (reaches_) {
      WEFT_ASSIGN_OR_RETURN(const void* const memory, variables_.DevicePointer(name));
      return std::span(static_cast<const std::byte*>(memory) + first, size);
    }
    if (!copy_.valid()) {
      WEFT_ASSIGN_OR_RETURN(copy_, Tensor::Allocate(DType::kUint8, Shape({kDigestPieceBytes})));
    }
    const std::span<std::byte> copy(static_cast<std::byte*>(copy_.raw_data()), size);
    WEFT_RETURN_IF_ERROR(variables_.ReadPart(name, first, copy));
    return std::span<const std::byte>(copy);
  }

  VariableStore& variables_;
  const bool reaches_;  // the host reaches the device's memory
  Tensor copy_;         // of a piece, where it does not
};

}  // namespace

absl::StatusOr<std::vector<uint64_t>> DigestVariables(Device& device, VariableStore& variables,
                                                      const std::vector<std::string>& names) {
  PieceReader reader(device, variables);
  std::vector<uint64_t> digests;
  digests.reserve(names.size());
  for (const std::string& name : names) {
    WEFT_ASSIGN_OR_RETURN(const uint64_t digest, reader.Digest(name));
    digests.push_back(digest);
  }
  return digests;
}

}  // namespace weft

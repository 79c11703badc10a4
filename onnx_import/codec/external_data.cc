#include "onnx_import/codec/external_data.h"

#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "onnx_import/codec/quote.h"
#include "onnx_import/codec/wire.pb.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "tensor/host_memory.h"

namespace weft {
namespace {

struct Region {
  std::string location;
  uint64_t offset = 0;
  std::optional<uint64_t> length;
};

absl::StatusOr<uint64_t> ParseSize(const std::string& key, const std::string& text) {
  uint64_t value = 0;
  if (absl::SimpleAtoi(text, &value)) return value;
  return absl::InvalidArgumentError(absl::StrCat("external data has ", key, " ", Quoted(text),
                                                 ", expected a whole number of bytes"));
}

absl::StatusOr<Region> ParseRegion(const onnx::TensorProto& tensor) {
  Region region;
  for (const onnx::StringStringEntryProto& entry : tensor.external_data()) {
    if (entry.key() == "location") {
      region.location = entry.value();
    } else if (entry.key() == "offset") {
      WEFT_ASSIGN_OR_RETURN(region.offset, ParseSize("offset", entry.value()));
    } else if (entry.key() == "length") {
      WEFT_ASSIGN_OR_RETURN(region.length, ParseSize("length", entry.value()));
    }
  }
  if (region.location.empty()) {
    return absl::InvalidArgumentError(
        "its data is external but no location is given; export the model again");
  }
  return region;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Buffer>> ExternalData::MapOwn(uint64_t offset, size_t bytes) const {
  const size_t size = own_file_ == nullptr ? 0 : own_file_->size();
  if (own_file_ != nullptr && offset <= size && bytes <= size - offset) {
    return AdoptHostMemory(own_file_->data() + offset, bytes, own_file_);
  }
  return absl::InvalidArgumentError(absl::StrCat("its ", bytes, " bytes are said to be at ", offset,
                                                 " of the model's file, which has ", size,
                                                 "; export the model again"));
}

absl::StatusOr<std::shared_ptr<Buffer>> ExternalData::Map(const onnx::TensorProto& tensor,
                                                          size_t bytes) {
  WEFT_ASSIGN_OR_RETURN(const Region region, ParseRegion(tensor));
  if (region.length && *region.length != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("external data in ", Quoted(region.location), " has length ", *region.length,
                     ", expected ", bytes, " bytes by its dtype and dims; export the model again"));
  }
  std::shared_ptr<const MappedFile>& file = files_[region.location];
  if (file == nullptr) {
    absl::StatusOr<std::shared_ptr<const MappedFile>> mapped =
        file_system_.MapFileBeneath(folder_, region.location);
    if (!mapped.ok()) {
      return Annotate(mapped.status(), absl::StrCat("external data in ", Quoted(region.location)));
    }
    if (manifest_ != nullptr) {
      WEFT_RETURN_IF_ERROR(manifest_->Check(region.location, (*mapped)->bytes()));
    }
    file = *std::move(mapped);
  }
  if (region.offset > file->size() || bytes > file->size() - region.offset) {
    return absl::InvalidArgumentError(
        absl::StrCat("external data in ", Quoted(region.location), " is ", bytes,
                     " bytes at offset ", region.offset, ", but the file has ", file->size(),
                     " bytes; it is truncated or belongs to another model"));
  }
  return AdoptHostMemory(file->data() + region.offset, bytes, file);
}

}  // namespace weft

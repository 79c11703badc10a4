#include "distributed/grpc/seal.h"

#include <cstdint>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "platform/checksum.h"

namespace weft {
namespace {

uint64_t ChecksumOfText(const std::string& text) {
  return Checksum(std::as_bytes(std::span(text)));
}

// Of the content as a message of this type.
uint64_t SealOf(const std::string& content, const google::protobuf::MessageLite& message) {
  return ChecksumOfText(content) ^ ChecksumOfText(message.GetTypeName());
}

}  // namespace

rpc::Sealed Seal(const google::protobuf::MessageLite& message) {
  rpc::Sealed sealed;
  message.SerializeToString(sealed.mutable_content());
  sealed.set_checksum(SealOf(sealed.content(), message));
  return sealed;
}

absl::Status Unseal(const rpc::Sealed& sealed, google::protobuf::MessageLite& message) {
  if (SealOf(sealed.content(), message) != sealed.checksum()) {
    return absl::DataLossError(absl::StrCat(
        "a message of type ", message.GetTypeName(), " with ", sealed.content().size(),
        " bytes was damaged on its way, or comes from another version of the program: its "
        "checksum differs"));
  }
  if (message.ParseFromString(sealed.content())) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("a message of type ", message.GetTypeName(),
                                          " cannot be read: its sender is of another version"));
}

}  // namespace weft

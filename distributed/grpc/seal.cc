#include "distributed/grpc/seal.h"

#include <google/protobuf/descriptor.pb.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "distributed/grpc/frame.h"
#include "distributed/grpc/partition.pb.h"
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

std::string WireFormatOf(const std::vector<const google::protobuf::FileDescriptor*>& files) {
  std::string text = absl::StrCat(kFrameHeaderBytes, " ", kFramePartBytes);
  for (const google::protobuf::FileDescriptor* const file : files) {
    google::protobuf::FileDescriptorProto declared;
    file->CopyTo(&declared);
    absl::StrAppend(&text, "\n", declared.SerializeAsString());
  }
  return absl::StrFormat("%016x", ChecksumOfText(text));
}

std::string WireFormat() {
  return WireFormatOf(
      {rpc::Sealed::descriptor()->file(), rpc::PartitionProto::descriptor()->file()});
}

std::string HandshakeVersion(const std::string& version) {
  return absl::StrCat(version, " (wire format ", WireFormat(), ")");
}

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

#include "training/data/zip_archive.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/status_macros.h"
#include "training/records/data_error.h"
#include "training/records/little_endian.h"

namespace weft {
namespace {

constexpr std::string_view kEndMark("PK\x05\x06", 4);
constexpr std::string_view kEnd64Mark("PK\x06\x06", 4);
constexpr std::string_view kEnd64LocatorMark("PK\x06\x07", 4);
constexpr std::string_view kDirectoryMark("PK\x01\x02", 4);
constexpr std::string_view kLocalMark("PK\x03\x04", 4);
constexpr size_t kEndSize = 22;
constexpr size_t kEnd64Size = 56;
constexpr size_t kEnd64LocatorSize = 20;
constexpr size_t kDirectoryEntrySize = 46;
constexpr size_t kLocalSize = 30;
constexpr size_t kLongestComment = 0xffff;
constexpr uint16_t kStored = 0;
constexpr uint16_t kDeflated = 8;
constexpr uint16_t kEncrypted = 1;
constexpr uint16_t kZip64Field = 1;
constexpr uint32_t kIn64 = 0xffffffff;  // the value is in the ZIP64 field
constexpr size_t kNamesShown = 20;

}  // namespace

absl::StatusOr<ZipArchive> ZipArchive::Open(std::string_view bytes, std::string name) {
  ZipArchive archive(bytes, std::move(name));
  if (bytes.substr(0, 4) != kLocalMark && bytes.substr(0, 4) != kEndMark) {
    return UnreadableData(archive.name_, "not a .npz (zip) file: it does not start with PK");
  }
  const size_t tail = bytes.size() - std::min(bytes.size(), kEndSize + kLongestComment);
  const size_t end = bytes.rfind(kEndMark);
  if (end == std::string_view::npos || end < tail || end + kEndSize > bytes.size()) {
    return DamagedData(archive.name_, "truncated: the zip directory at the end is missing");
  }
  uint64_t count = ReadLittleEndian<uint16_t>(bytes, end + 10);
  uint64_t size = ReadLittleEndian<uint32_t>(bytes, end + 12);
  uint64_t offset = ReadLittleEndian<uint32_t>(bytes, end + 16);
  if (end >= kEnd64LocatorSize && bytes.substr(end - kEnd64LocatorSize, 4) == kEnd64LocatorMark) {
    const auto at = ReadLittleEndian<uint64_t>(bytes, end - kEnd64LocatorSize + 8);
    if (at > bytes.size() || bytes.size() - at < kEnd64Size || bytes.substr(at, 4) != kEnd64Mark) {
      return DamagedData(archive.name_, "the ZIP64 directory is not where it should be");
    }
    count = ReadLittleEndian<uint64_t>(bytes, at + 32);
    size = ReadLittleEndian<uint64_t>(bytes, at + 40);
    offset = ReadLittleEndian<uint64_t>(bytes, at + 48);
  }
  WEFT_RETURN_IF_ERROR(archive.ReadDirectory(offset, size, count));
  return archive;
}

absl::Status ZipArchive::ReadDirectory(uint64_t offset, uint64_t size, uint64_t count) {
  const auto damaged = [this](const std::string& what) {
    return DamagedData(name_, absl::StrCat("the zip directory is damaged: ", what));
  };
  if (offset > bytes_.size() || size > bytes_.size() - offset) return damaged("it ends outside");
  std::string_view rest = bytes_.substr(offset, size);
  for (uint64_t i = 0; i < count; ++i) {
    if (rest.size() < kDirectoryEntrySize || rest.substr(0, 4) != kDirectoryMark) {
      return damaged(absl::StrCat("entry ", i, " of ", count, " is missing"));
    }
    Member member;
    member.flags = ReadLittleEndian<uint16_t>(rest, 8);
    member.method = ReadLittleEndian<uint16_t>(rest, 10);
    member.crc = ReadLittleEndian<uint32_t>(rest, 16);
    member.packed_bytes = ReadLittleEndian<uint32_t>(rest, 20);
    member.bytes = ReadLittleEndian<uint32_t>(rest, 24);
    member.header = ReadLittleEndian<uint32_t>(rest, 42);
    const size_t name = ReadLittleEndian<uint16_t>(rest, 28);
    const size_t extra = ReadLittleEndian<uint16_t>(rest, 30);
    const size_t comment = ReadLittleEndian<uint16_t>(rest, 32);
    rest.remove_prefix(kDirectoryEntrySize);
    if (rest.size() < name + extra + comment) return damaged(absl::StrCat("entry ", i, " is cut"));
    member.name = std::string(rest.substr(0, name));
    WEFT_RETURN_IF_ERROR(ReadExtraField(rest.substr(name, extra), member));
    rest.remove_prefix(name + extra + comment);
    members_.push_back(std::move(member));
  }
  return absl::OkStatus();
}

absl::Status ZipArchive::ReadExtraField(std::string_view extra, Member& member) const {
  while (extra.size() >= 4) {
    const auto id = ReadLittleEndian<uint16_t>(extra, 0);
    const size_t size = ReadLittleEndian<uint16_t>(extra, 2);
    extra.remove_prefix(4);
    if (size > extra.size()) break;
    std::string_view field = extra.substr(0, size);
    extra.remove_prefix(size);
    if (id != kZip64Field) continue;
    for (uint64_t* const value : {&member.bytes, &member.packed_bytes, &member.header}) {
      if (*value != kIn64) continue;
      if (field.size() < 8) {
        return DamagedData(name_, absl::StrCat("the ZIP64 sizes of '", member.name, "' are cut"));
      }
      *value = ReadLittleEndian<uint64_t>(field, 0);
      field.remove_prefix(8);
    }
  }
  return absl::OkStatus();
}

std::vector<std::string> ZipArchive::MemberNames() const {
  std::vector<std::string> names;
  for (const Member& member : members_) names.push_back(member.name);
  return names;
}

absl::StatusOr<const ZipArchive::Member*> ZipArchive::Find(const std::string& member) const {
  const auto found = std::find_if(members_.begin(), members_.end(),
                                  [&member](const Member& m) { return m.name == member; });
  if (found != members_.end()) return &*found;
  std::vector<std::string> names = MemberNames();
  if (names.size() > kNamesShown) names.resize(kNamesShown);
  return absl::NotFoundError(absl::StrCat("data file '", name_, "' has no member '", member,
                                          "'; it has ", members_.size(), ": ",
                                          absl::StrJoin(names, ", ")));
}

absl::StatusOr<std::string> ZipArchive::ReadBeginning(const std::string& member,
                                                      size_t max_bytes) const {
  WEFT_ASSIGN_OR_RETURN(const Member* const found, Find(member));
  WEFT_ASSIGN_OR_RETURN(const std::string_view packed, Packed(*found));
  if (found->method == kStored) return std::string(packed.substr(0, max_bytes));
  WEFT_ASSIGN_OR_RETURN(std::string content, Inflate(*found, packed, max_bytes));
  content.resize(std::min(content.size(), max_bytes));
  return content;
}

absl::StatusOr<std::string> ZipArchive::Read(const std::string& member, size_t max_bytes) const {
  WEFT_ASSIGN_OR_RETURN(const Member* const found, Find(member));
  WEFT_ASSIGN_OR_RETURN(const std::string_view packed, Packed(*found));
  std::string content;
  if (found->method == kStored) {
    content = std::string(packed);
  } else {
    const size_t limit = std::min<size_t>(max_bytes, found->bytes);
    WEFT_ASSIGN_OR_RETURN(content, Inflate(*found, packed, limit + 1));
    if (content.size() > max_bytes) {
      return UnreadableData(name_, absl::StrCat("member '", member, "' unpacks to more than ",
                                                max_bytes, " bytes, the most that is read of it"));
    }
    if (content.size() > found->bytes) {
      return DamagedData(name_, absl::StrCat("member '", member, "' unpacks to more than the ",
                                             found->bytes, " bytes that the zip directory says"));
    }
  }
  uLong crc = crc32(0, nullptr, 0);
  for (size_t at = 0; at < content.size(); at += size_t{1} << 30) {
    crc = crc32(crc, reinterpret_cast<const Bytef*>(content.data() + at),
                static_cast<uInt>(std::min(content.size() - at, size_t{1} << 30)));
  }
  if (content.size() != found->bytes || crc != found->crc) {
    return DamagedData(name_, absl::StrCat("member '", member, "' unpacks to ", content.size(),
                                           " bytes with CRC-32 ", crc, ", expected ", found->bytes,
                                           " with ", found->crc, "; fetch the file again"));
  }
  return content;
}

absl::StatusOr<std::string_view> ZipArchive::Packed(const Member& member) const {
  if ((member.flags & kEncrypted) != 0) {
    return UnreadableData(name_, absl::StrCat("member '", member.name, "' is encrypted"));
  }
  if (member.method != kStored && member.method != kDeflated) {
    return UnreadableData(
        name_, absl::StrCat("member '", member.name, "' is packed by method ", member.method,
                            ", expected 0 (stored) or 8 (deflate)"));
  }
  const auto damaged = [&] {
    return DamagedData(name_, absl::StrCat("member '", member.name, "' is not at byte ",
                                           member.header, ", where the zip directory has it"));
  };
  if (member.header > bytes_.size() || bytes_.size() - member.header < kLocalSize ||
      bytes_.substr(member.header, 4) != kLocalMark) {
    return damaged();
  }
  const std::string_view header = bytes_.substr(member.header);
  const size_t skipped =
      kLocalSize + ReadLittleEndian<uint16_t>(header, 26) + ReadLittleEndian<uint16_t>(header, 28);
  if (skipped > header.size() || member.packed_bytes > header.size() - skipped) return damaged();
  return header.substr(skipped, member.packed_bytes);
}

absl::StatusOr<std::string> ZipArchive::Inflate(const Member& member, std::string_view packed,
                                                size_t enough) const {
  z_stream stream = {};
  if (inflateInit2(&stream, -15) != Z_OK) return absl::ResourceExhaustedError("zlib has no memory");
  std::string out;
  std::vector<char> chunk(size_t{256} << 10);
  size_t given = 0;
  int result = Z_OK;
  while (result == Z_OK && out.size() < enough) {
    if (stream.avail_in == 0) {
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + given));
      stream.avail_in = static_cast<uInt>(std::min<size_t>(packed.size() - given, 1U << 30));
      given += stream.avail_in;
    }
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    result = inflate(&stream, Z_NO_FLUSH);
    out.append(chunk.data(), chunk.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  if (result == Z_STREAM_END || out.size() >= enough) return out;
  return DamagedData(name_, absl::StrCat("member '", member.name,
                                         "' is damaged or truncated; fetch the file again"));
}

}  // namespace weft

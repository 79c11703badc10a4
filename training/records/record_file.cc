#include "training/records/record_file.h"

#include "absl/strings/str_cat.h"
#include "training/records/crc32c.h"
#include "training/records/data_error.h"
#include "training/records/little_endian.h"

namespace weft {
namespace {

constexpr size_t kHeaderBytes = 12;
constexpr size_t kFooterBytes = 4;

}  // namespace

absl::StatusOr<std::vector<RecordPlace>> FindRecords(std::string_view file,
                                                     const std::string& name) {
  std::vector<RecordPlace> places;
  for (size_t at = 0; at < file.size();) {
    const std::string_view rest = file.substr(at);
    const auto where = [&] { return absl::StrCat("record ", places.size(), " at byte ", at); };
    if (rest.size() < kHeaderBytes) {
      return DamagedData(name, absl::StrCat("truncated inside the header of ", where()));
    }
    if (ReadLittleEndian<uint32_t>(rest, 8) != MaskedCrc32c(rest.substr(0, 8))) {
      if (places.empty()) {
        return DamagedData(name, rest.substr(0, 2) == "\x1f\x8b"
                                     ? "is packed with gzip; unpack it, so that records can be read"
                                       " in any order"
                                     : "is no TFRecord file, or its first bytes are damaged: they "
                                       "have the wrong checksum");
      }
      return DamagedData(name, absl::StrCat("the length of ", where(),
                                            " has the wrong checksum; fetch the file again"));
    }
    const auto bytes = ReadLittleEndian<uint64_t>(rest, 0);
    if (rest.size() - kHeaderBytes < kFooterBytes ||
        bytes > rest.size() - kHeaderBytes - kFooterBytes) {
      return DamagedData(name, absl::StrCat("truncated: ", where(), " has ", bytes, " bytes, ",
                                            rest.size() - kHeaderBytes, " are left of the file"));
    }
    places.push_back({at + kHeaderBytes, bytes,
                      ReadLittleEndian<uint32_t>(rest, kHeaderBytes + static_cast<size_t>(bytes))});
    at += kHeaderBytes + static_cast<size_t>(bytes) + kFooterBytes;
  }
  return places;
}

absl::StatusOr<std::string_view> ReadRecord(std::string_view file, const RecordPlace& place,
                                            const std::string& name) {
  const std::string_view payload = file.substr(place.offset, place.bytes);
  if (MaskedCrc32c(payload) == place.checksum) return payload;
  return DamagedData(name, absl::StrCat("the record at byte ", place.offset - kHeaderBytes,
                                        " is damaged: wrong checksum; fetch the file again"));
}

std::string FrameRecord(std::string_view payload) {
  std::string record;
  AppendLittleEndian<uint64_t>(payload.size(), record);
  AppendLittleEndian<uint32_t>(MaskedCrc32c(record), record);
  record.append(payload);
  AppendLittleEndian<uint32_t>(MaskedCrc32c(payload), record);
  return record;
}

}  // namespace weft

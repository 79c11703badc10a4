#include "training/data/data_file.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "training/records/data_error.h"

namespace weft {
namespace {

uint32_t BigEndian32(const char* bytes) {
  const auto* b = reinterpret_cast<const unsigned char*>(bytes);
  return (uint32_t{b[0]} << 24) | (uint32_t{b[1]} << 16) | (uint32_t{b[2]} << 8) | uint32_t{b[3]};
}

// Reverses the bytes of each element, in place.
void SwapBytes(char* data, size_t bytes, size_t element) {
  for (size_t i = 0; element > 1 && i + element <= bytes; i += element) {
    std::reverse(data + i, data + i + element);
  }
}

std::optional<DType> IdxType(unsigned char code) {
  switch (code) {
    case 0x08:
      return DType::kUint8;
    case 0x09:
      return DType::kInt8;
    case 0x0B:
      return DType::kInt16;
    case 0x0C:
      return DType::kInt32;
    case 0x0D:
      return DType::kFloat32;
    case 0x0E:
      return DType::kFloat64;
    default:
      return std::nullopt;
  }
}

const std::map<std::string, DType, std::less<>>& NpyTypes() {
  static const auto* const kTypes = new std::map<std::string, DType, std::less<>>{
      {"b1", DType::kBool},    {"f2", DType::kFloat16}, {"f4", DType::kFloat32},
      {"f8", DType::kFloat64}, {"i1", DType::kInt8},    {"i2", DType::kInt16},
      {"i4", DType::kInt32},   {"i8", DType::kInt64},   {"u1", DType::kUint8},
      {"u2", DType::kUint16},  {"u4", DType::kUint32},  {"u8", DType::kUint64},
  };
  return *kTypes;
}

// The text after `'key':` in an NPY header, up to the comma that ends it at the top level.
std::optional<std::string_view> HeaderField(std::string_view header, const std::string& key) {
  const size_t at = header.find(absl::StrCat("'", key, "':"));
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = header.substr(at + key.size() + 3);
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  const char close = !rest.empty() && rest.front() == '(' ? ')' : ',';
  const size_t end = rest.find(close);
  if (end == std::string_view::npos) return std::nullopt;
  return rest.substr(0, end);
}

// The dimensions of `(3, 4` (without the closing parenthesis).
absl::StatusOr<std::vector<int64_t>> ParseNpyShape(std::string_view text, const std::string& name) {
  std::vector<int64_t> dims;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    if (*at == ' ' || *at == ',' || *at == '(') {
      ++at;
      continue;
    }
    int64_t dim = 0;
    const auto [next, error] = std::from_chars(at, end, dim);
    if (error != std::errc()) {
      return UnreadableData(name, absl::StrCat("the NPY header has the shape ", std::string(text),
                                               "), expected numbers"));
    }
    dims.push_back(dim);
    at = next;
  }
  return dims;
}

absl::StatusOr<ArrayLayout> NewLayout(DType dtype, const std::vector<int64_t>& dims, size_t offset,
                                      bool big_endian, const std::string& name) {
  absl::StatusOr<Shape> shape = Shape::Create(dims);
  if (!shape.ok()) return UnreadableData(name, std::string(shape.status().message()));
  return ArrayLayout{dtype, *std::move(shape), offset, big_endian};
}

// The elements must fill the file exactly. The shape is only a claim: it is checked before anybody
// allocates.
absl::Status CheckFills(const ArrayLayout& layout, std::string_view bytes,
                        const std::string& name) {
  const size_t payload = bytes.size() - layout.offset;
  const size_t width = static_cast<size_t>(DTypeBytes(layout.dtype, 1));
  const size_t elements = static_cast<size_t>(layout.shape.num_elements());
  const std::string claim =
      absl::StrCat(layout.shape.ToString(), " of ", std::string(DTypeName(layout.dtype)), " needs ",
                   elements, " x ", width, " bytes");
  if (payload / width < elements) {
    return DamagedData(name, absl::StrCat("truncated: ", payload, " bytes of data, ", claim));
  }
  if (payload > elements * width) {
    return DamagedData(name, absl::StrCat(payload - elements * width, " bytes too many: ", claim));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> ReadArray(std::string_view bytes, const ArrayLayout& layout,
                                 const std::string& name) {
  const std::string_view payload = bytes.substr(layout.offset);
  if (layout.dtype == DType::kBool &&
      payload.find_first_not_of(std::string_view("\0\1", 2)) != std::string_view::npos) {
    return DamagedData(name, "a bool that is neither 0 nor 1");
  }
  WEFT_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(layout.dtype, layout.shape));
  if (payload.empty()) return tensor;
  std::memcpy(tensor.raw_data(), payload.data(), payload.size());
  if (layout.big_endian != (std::endian::native == std::endian::big)) {
    SwapBytes(static_cast<char*>(tensor.raw_data()), tensor.bytes(),
              static_cast<size_t>(DTypeBytes(layout.dtype, 1)));
  }
  return tensor;
}

absl::StatusOr<ArrayLayout> IdxHeader(std::string_view bytes, const std::string& name) {
  if (bytes.size() < 4) {
    return DamagedData(name,
                       absl::StrCat("truncated: ", bytes.size(), " bytes, an IDX header has 8"));
  }
  const auto byte = [&](size_t i) { return int{static_cast<unsigned char>(bytes[i])}; };
  const auto type = IdxType(static_cast<unsigned char>(bytes[2]));
  const int rank = byte(3);
  if (bytes[0] != 0 || bytes[1] != 0 || !type || rank == 0 || rank > kMaxRank) {
    return UnreadableData(
        name,
        absl::StrCat("it starts with the bytes ", byte(0), " ", byte(1), " ", byte(2), " ", byte(3),
                     "; expected an IDX file (0 0 TYPE ", "RANK), a .npy file, or a gzip of one"));
  }
  const size_t header = 4 + 4 * static_cast<size_t>(rank);
  if (bytes.size() < header) {
    return DamagedData(name, absl::StrCat("truncated inside the IDX header: ", bytes.size(),
                                          " bytes, rank ", rank, " needs ", header));
  }
  std::vector<int64_t> dims;
  for (int i = 0; i < rank; ++i) dims.push_back(BigEndian32(bytes.data() + 4 + 4 * i));
  return NewLayout(*type, dims, header, /*big_endian=*/true, name);
}

absl::StatusOr<ArrayLayout> NpyHeader(std::string_view bytes, const std::string& name) {
  if (bytes.substr(0, 6) != "\x93NUMPY") return UnreadableData(name, "not a .npy file");
  if (bytes.size() < 12) return DamagedData(name, "truncated: shorter than an NPY header");
  const auto byte = [&](size_t i) { return size_t{static_cast<unsigned char>(bytes[i])}; };
  const size_t version = byte(6);
  if (version < 1 || version > 3) {
    return UnreadableData(name,
                          absl::StrCat("NPY version ", version, " at byte 6, expected 1 to 3"));
  }
  const size_t prefix = version == 1 ? 10 : 12;
  const size_t length = version == 1 ? byte(8) | byte(9) << 8
                                     : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  if (bytes.size() < prefix + length) {
    return DamagedData(name, absl::StrCat("truncated inside the NPY header: ", bytes.size(),
                                          " bytes, the header needs ", prefix + length));
  }
  const std::string_view header = bytes.substr(prefix, length);
  const auto descr = HeaderField(header, "descr");
  const auto order = HeaderField(header, "fortran_order");
  const auto dims_text = HeaderField(header, "shape");
  if (!descr || !order || !dims_text || descr->size() < 5) {
    return UnreadableData(name, "the NPY header lacks descr, fortran_order or shape");
  }
  if (order->find("True") != std::string_view::npos) {
    return UnreadableData(name, "stored in Fortran order; save it with numpy.ascontiguousarray");
  }
  const char byte_order = (*descr)[1];
  const std::string_view code = descr->substr(2, descr->size() - 3);
  const auto type = NpyTypes().find(code);
  if (type == NpyTypes().end()) {
    return UnreadableData(name,
                          absl::StrCat("element type ", std::string(*descr),
                                       " is not supported; expected a bool, integer or float"));
  }
  WEFT_ASSIGN_OR_RETURN(std::vector<int64_t> dims, ParseNpyShape(*dims_text, name));
  return NewLayout(type->second, dims, prefix + length, byte_order == '>', name);
}

absl::StatusOr<ArrayLayout> ArrayHeader(std::string_view bytes, const std::string& name) {
  return bytes.substr(0, 6) == "\x93NUMPY" ? NpyHeader(bytes, name) : IdxHeader(bytes, name);
}

absl::StatusOr<Tensor> ReadWhole(std::string_view bytes, const absl::StatusOr<ArrayLayout>& layout,
                                 const std::string& name) {
  WEFT_RETURN_IF_ERROR(layout.status());
  WEFT_RETURN_IF_ERROR(CheckFills(*layout, bytes, name));
  return ReadArray(bytes, *layout, name);
}

// Unpacks until there are `enough` bytes, or all.
absl::StatusOr<std::string> Gunzip(std::string_view bytes, const std::string& name, size_t enough) {
  z_stream stream = {};
  if (inflateInit2(&stream, 15 + 16) != Z_OK) {
    return absl::ResourceExhaustedError("zlib has no memory");
  }
  std::string out;
  std::vector<char> chunk(size_t{1} << 20);
  size_t given = 0;  // of `bytes`, to zlib, which counts in 32 bits
  int result = Z_OK;
  while (result == Z_OK && out.size() < enough) {
    if (stream.avail_in == 0) {
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + given));
      stream.avail_in = static_cast<uInt>(std::min<size_t>(bytes.size() - given, 1U << 30));
      given += stream.avail_in;
    }
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    result = inflate(&stream, Z_NO_FLUSH);
    out.append(chunk.data(), chunk.size() - stream.avail_out);
    // A gzip file may be several ones, end to end; zlib stops after each.
    const bool more = stream.avail_in > 0 || given < bytes.size();
    if (result == Z_STREAM_END && more) result = inflateReset(&stream);
  }
  const size_t read = given - stream.avail_in;
  inflateEnd(&stream);
  if (result == Z_STREAM_END || out.size() >= enough) return out;
  return DamagedData(name, absl::StrCat("the gzip stream is damaged or truncated near byte ", read,
                                        " of ", bytes.size(), "; fetch the file again"));
}

// One array: no more is unpacked than its header says.
absl::StatusOr<std::string> GunzipArray(std::string_view bytes, const std::string& name) {
  WEFT_ASSIGN_OR_RETURN(const std::string beginning, Gunzip(bytes, name, kArrayHeaderBytes));
  WEFT_ASSIGN_OR_RETURN(const size_t size, ArrayFileBytes(beginning, name));
  WEFT_ASSIGN_OR_RETURN(std::string out, Gunzip(bytes, name, size + 1));
  if (out.size() <= size) return out;
  return DamagedData(name, absl::StrCat("unpacks to more bytes than the ", size,
                                        " that its header says; it is damaged, or no array"));
}

}  // namespace

absl::StatusOr<std::string> GunzipToMemory(std::string_view bytes, const std::string& name,
                                           size_t max_bytes) {
  WEFT_ASSIGN_OR_RETURN(std::string out, Gunzip(bytes, name, max_bytes + 1));
  if (out.size() <= max_bytes) return out;
  return UnreadableData(
      name, absl::StrCat("unpacks to more than ", max_bytes, " bytes, the most we read; split it"));
}

absl::StatusOr<size_t> ArrayFileBytes(std::string_view beginning, const std::string& name) {
  WEFT_ASSIGN_OR_RETURN(const ArrayLayout layout, ArrayHeader(beginning, name));
  return layout.offset + static_cast<size_t>(DTypeBytes(layout.dtype, layout.shape.num_elements()));
}

absl::StatusOr<ArrayLayout> ReadArrayLayout(std::string_view bytes, const std::string& name) {
  WEFT_ASSIGN_OR_RETURN(ArrayLayout layout, ArrayHeader(bytes, name));
  WEFT_RETURN_IF_ERROR(CheckFills(layout, bytes, name));
  return layout;
}

absl::StatusOr<Tensor> ParseIdx(std::string_view bytes, const std::string& name) {
  return ReadWhole(bytes, IdxHeader(bytes, name), name);
}

absl::StatusOr<Tensor> ParseNpy(std::string_view bytes, const std::string& name) {
  return ReadWhole(bytes, NpyHeader(bytes, name), name);
}

absl::StatusOr<Tensor> ReadDataFile(FileSystem& files, const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(auto file, files.MapFile(path));
  std::string_view bytes(static_cast<const char*>(static_cast<const void*>(file->data())),
                         file->size());
  std::string unpacked;
  if (bytes.substr(0, 2) == "\x1f\x8b") {
    WEFT_ASSIGN_OR_RETURN(unpacked, GunzipArray(bytes, path));
    bytes = unpacked;
  }
  if (bytes.substr(0, 6) == "\x93NUMPY") return ParseNpy(bytes, path);
  return ParseIdx(bytes, path);
}

absl::StatusOr<std::string> ToNpy(const Tensor& tensor) {
  std::string code;
  for (const auto& [text, dtype] : NpyTypes()) {
    if (dtype == tensor.dtype()) code = text;
  }
  if (code.empty()) {
    return absl::UnimplementedError(absl::StrCat(
        "NPY has no type for ", std::string(DTypeName(tensor.dtype())), "; cast the output first"));
  }
  const char order = code[1] == '1' ? '|' : '<';
  std::string dims;
  for (int64_t dim : tensor.shape().dims()) absl::StrAppend(&dims, dim, ", ");
  if (tensor.shape().rank() > 1) dims.resize(dims.size() - 2);
  if (tensor.shape().rank() == 1) dims.resize(dims.size() - 1);  // "3,": a Python tuple of one
  std::string header = absl::StrCat("{'descr': '", std::string(1, order), code,
                                    "', 'fortran_order': False, 'shape': (", dims, "), }");
  header.append(63 - (10 + header.size()) % 64, ' ');
  header.push_back('\n');
  std::string out("\x93NUMPY\x01\x00", 8);
  out.push_back(static_cast<char>(header.size() & 0xff));
  out.push_back(static_cast<char>(header.size() >> 8));
  out += header;
  out.append(static_cast<const char*>(tensor.raw_data()), tensor.bytes());
  return out;
}

}  // namespace weft

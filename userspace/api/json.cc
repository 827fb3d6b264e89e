// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/json.h"

#include <cmath>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "google/protobuf/descriptor.h"

namespace cw::api {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Json = nlohmann::ordered_json;

// PATH_STATE_UP of enum PathState -> "up".
std::string EnumName(const EnumValueDescriptor& value) {
  std::string prefix;
  for (const char c : value.type()->name()) {
    if (absl::ascii_isupper(c) && !prefix.empty()) prefix += '_';
    prefix += absl::ascii_toupper(c);
  }
  prefix += '_';
  std::string name = value.name();
  if (absl::StartsWith(name, prefix)) name = name.substr(prefix.size());
  return absl::AsciiStrToLower(name);
}

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json Single(const Message& message, const FieldDescriptor& field) {
  const Reflection& r = *message.GetReflection();
  if (field.has_optional_keyword() && !r.HasField(message, &field)) return nullptr;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return r.GetInt32(message, &field);
    case FieldDescriptor::CPPTYPE_INT64:
      return r.GetInt64(message, &field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return r.GetUInt32(message, &field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return r.GetUInt64(message, &field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Number(r.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Number(r.GetFloat(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return r.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumName(*r.GetEnum(message, &field));
    case FieldDescriptor::CPPTYPE_STRING:
      return r.GetString(message, &field);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (!r.HasField(message, &field)) return nullptr;
      return ToJson(r.GetMessage(message, &field));
  }
  return nullptr;
}

Json Repeated(const Message& message, const FieldDescriptor& field) {
  const Reflection& r = *message.GetReflection();
  Json array = Json::array();
  for (int i = 0; i < r.FieldSize(message, &field); ++i) {
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        array.push_back(ToJson(r.GetRepeatedMessage(message, &field, i)));
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        array.push_back(r.GetRepeatedString(message, &field, i));
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        array.push_back(r.GetRepeatedUInt32(message, &field, i));
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        array.push_back(EnumName(*r.GetRepeatedEnum(message, &field, i)));
        break;
      default:
        array.push_back(nullptr);  // no such field in the schema; api_test holds it so
    }
  }
  return array;
}

}  // namespace

Json ToJson(const Message& message) {
  Json object = Json::object();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    object[field.name()] = field.is_repeated() ? Repeated(message, field) : Single(message, field);
  }
  return object;
}

}  // namespace cw::api

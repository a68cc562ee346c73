//! The containers of an account: lists, makes and removes them.

use super::AzureStore;
use crate::rest::parse_http_date;
use crate::xml::{XmlError, walk};
use crate::{BucketInfo, BucketPage, Error, ErrorKind, Result};
use http::Method;

impl AzureStore {
    /// Turns a container into its account.
    pub(crate) fn of_account(self) -> Self {
        Self { url: format!("az://{}", self.account), container: String::new(), ..self }
    }

    pub(crate) async fn list_containers(&self, continuation: Option<&str>) -> Result<BucketPage> {
        let mut query = vec![("comp", "list")];
        query.extend(continuation.map(|marker| ("marker", marker)));
        let call = self.call("list containers of", Method::GET, "", &query);
        let (_, body) = self.send_small(call.clone()).await?;
        let page = parse_containers(&body).map_err(|error| call.error(ErrorKind::Server, error))?;
        match (&page.continuation, continuation) {
            (Some(next), Some(before)) if next == before => {
                Err(call.error(ErrorKind::Protocol, "bad listing: the server repeats its marker"))
            }
            _ => Ok(page),
        }
    }

    pub(crate) async fn create(&self) -> Result<()> {
        let call = self.call("make", Method::PUT, "", &[("restype", "container")]);
        self.send_small(call).await.map(drop).map_err(|error| match error.kind {
            _ if error.message.contains("ContainerAlreadyExists") => {
                let message = format!("the container exists: {}", error.message);
                Error { kind: ErrorKind::Occupied, message, ..error }
            }
            _ => error,
        })
    }

    pub(crate) async fn remove(&self) -> Result<()> {
        let call = self.call("remove", Method::DELETE, "", &[("restype", "container")]);
        self.send_small(call).await.map(drop)
    }
}

/// Reads `EnumerationResults` of List Containers.
fn parse_containers(xml: &[u8]) -> Result<BucketPage, XmlError> {
    let (mut page, mut container) = (BucketPage::default(), BucketInfo::default());
    walk(xml, "EnumerationResults", |at| {
        match (at.parent, at.name) {
            ("Container", "Name") => at.text.clone_into(&mut container.name),
            ("Properties", "Last-Modified") => container.created_unix_ms = parse_http_date(at.text),
            (_, "Container") if container.name.is_empty() => {
                return Err(XmlError("a container has no name".to_owned()));
            }
            (_, "Container") => page.buckets.push(std::mem::take(&mut container)),
            ("EnumerationResults", "NextMarker") if !at.text.is_empty() => {
                page.continuation = Some(at.text.to_owned());
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_read() {
        let xml =
            b"<EnumerationResults ServiceEndpoint=\"https://a/\"><Containers><Container><Name>c</Name><Properties>\
            <Last-Modified>Thu, 01 Jan 1970 00:00:01 GMT</Last-Modified></Properties></Container></Containers>\
            <NextMarker>d</NextMarker></EnumerationResults>";
        let page = parse_containers(xml).unwrap();
        assert_eq!(page.buckets, [BucketInfo { name: "c".to_owned(), created_unix_ms: Some(1000), region: None }]);
        assert_eq!(page.continuation.as_deref(), Some("d"));
        assert!(
            parse_containers(b"<EnumerationResults><Containers><Container/></Containers></EnumerationResults>")
                .is_err()
        );
    }
}
